from dial_client.providers.scripted import ScriptedProvider as ScriptedProvider
from dial_client.testing.network_block import NetworkBlocked as NetworkBlocked
from dial_client.testing.network_block import block_network as block_network
from dial_client.testing.recorded_clients import DialRecording as DialRecording
from dial_client.testing.turn_assertions import assert_answered as assert_answered
from dial_client.testing.turn_assertions import assert_called as assert_called
from dial_client.testing.turn_assertions import assert_not_called as assert_not_called
from dial_client.testing.turn_assertions import calls as calls

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
