"""Helpers to test programs that use this package: scripted models, recordings, assertions, and a network block.

`ScriptedProvider` is a model with scripted replies. The fixture ``dial_recording`` of the pytest plugin yields a
`DialRecording`, whose clients are recorded once, with ``pytest --dial-record``, and replayed afterwards.

Each name is imported from its module when it is first used: every run of pytest imports this package for its plugin.
"""

from importlib import import_module

_MODULE_OF = {
    "DialRecording": "dial_client.testing.recorded_clients",
    "NetworkBlocked": "dial_client.testing.network_block",
    "ScriptedProvider": "dial_client.providers.scripted",
    "assert_answered": "dial_client.testing.turn_assertions",
    "assert_called": "dial_client.testing.turn_assertions",
    "assert_not_called": "dial_client.testing.turn_assertions",
    "block_network": "dial_client.testing.network_block",
    "calls": "dial_client.testing.turn_assertions",
}

__all__: list[str] = sorted(_MODULE_OF)  # noqa: PLE0605 - computed, so that there is one list and not two


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
