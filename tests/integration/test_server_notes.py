"""The notes of turns on servers that cannot be used: told once in a conversation, until the state changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dial_client import DialClient, ServerState
from dial_client.testing import ScriptedProvider
from tests.inner import ConversationManager, MemoryStore, Message, Regeneration
from tests.support.program import RAW

pytestmark = pytest.mark.anyio

# A server that starts if there is a file.
NEEDS_KEY = """
import pathlib, runpy, sys
if not pathlib.Path(sys.argv[1]).exists():
    raise SystemExit("there is no key")
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
GONE = "server 'maps' is not available: the server ended with exit code 1; it last said: there is no key"
BACK = "server 'maps' is available now"


async def test_a_conversation_has_the_note_on_a_failed_server_again_only_after_its_state_has_changed(
    tmp_path: Path,
) -> None:
    key = tmp_path / "key"
    servers = {"maps": {"command": sys.executable, "args": ["-c", NEEDS_KEY, str(key), RAW[-1], "Server"]}}
    async with DialClient(ScriptedProvider(["Yes."] * 9), servers=servers) as dial:
        manager = ConversationManager(dial, MemoryStore())
        id_ = (await manager.create()).id

        async def ask(message: Message | Regeneration) -> tuple[str, ...]:
            return (await (await manager.start(id_, message)).result()).notes

        notes = [await ask(Message.user("One?")), await ask(Message.user("Two?")), await ask(Regeneration())]
        key.touch()
        assert (await dial.restart_server("maps")).state is ServerState.READY
        notes += [await ask(Message.user("Three?")), await ask(Message.user("Four?"))]
        key.unlink()
        assert (await dial.restart_server("maps")).state is ServerState.FAILED
        notes += [await ask(Message.user("Five?")), await ask(Message.user("Six?"))]
        stored = [details.get("notes", []) for _, details in (await manager.view(id_)).turns]
        of_another = (await (await manager.start((await manager.create()).id, Message.user("One?"))).result()).notes
    assert notes == [(GONE,), (), (), (BACK,), (), (GONE,), ()]
    assert stored == [[GONE], [], [BACK], [], [GONE], []]
    assert of_another == (GONE,)
