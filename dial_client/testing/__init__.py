"""Aids for tests of programs that use this package: scripted models, recordings, assertions, and no network.

`ScriptedProvider` is a model that plays replies. The fixture ``dial_recording`` of the pytest plugin gives a
`DialRecording`: clients that are recorded once, with ``pytest --dial-record``, and replayed afterwards.
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
