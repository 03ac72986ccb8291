"""Helpers to test programs that use this package: scripted models, recordings, assertions, and a network block.

`ScriptedProvider` is a model with scripted replies. The fixture ``dial_recording`` of the pytest plugin yields a
`DialRecording`, whose clients are recorded once, with ``pytest --dial-record``, and replayed afterwards.
"""

from dial_client.providers.scripted import ScriptedProvider
from dial_client.testing.network_block import NetworkBlocked, block_network
from dial_client.testing.recorded_clients import DialRecording
from dial_client.testing.turn_assertions import assert_answered, assert_called, assert_not_called, calls

__all__ = [
    "DialRecording",
    "NetworkBlocked",
    "ScriptedProvider",
    "assert_answered",
    "assert_called",
    "assert_not_called",
    "block_network",
    "calls",
]
