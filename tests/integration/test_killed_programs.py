"""Programs killed during a turn: the conversation can be read, has a note about it, and can be continued."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.inner import (
    CUT_OFF,
    INTERRUPTED,
    Conversation,
    ConversationManager,
    DialClient,
    Message,
    ModelRequest,
    Role,
    ScriptedProvider,
    SQLStore,
    apply_edits,
    repair_history,
)
from tests.support.conversation_program import server
from tests.support.program import python_server, start_python
from tests.support.servers.launch import HERE
from tests.support.temporary_stores import DATABASES, place

pytestmark = pytest.mark.anyio

LEASE = 0.6
"""Lease of a turn in seconds; the next turn waits until it expires."""
BOTH = {"text": "Let me see.", "tool_calls": [{"name": "echo", "arguments": {}}, {"name": "stall", "arguments": {}}]}
ECHO = {"tool_calls": [{"name": "echo", "arguments": {}}]}
HANG = {"hang": True}
ANSWER = "All is well."
EVERYTHING = 10_000


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


@dataclass(frozen=True)
class Scene:
    """A conversation in a database, and a log of its tool calls."""

    folder: Path
    where: str
    store: SQLStore
    conversation: str

    @property
    def ran(self) -> list[str]:
        """The names of the tools that any program has run."""
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    @asynccontextmanager
    async def talker(self, *replies: Any, reads: int = EVERYTHING, **more: Any) -> AsyncIterator[subprocess.Popen[str]]:
        """Run the program, and kill it at the end of the block."""
        job = {
            "store": self.where,
            "conversation": self.conversation,
            "replies": replies,
            "ran": str(self.folder / "ran"),
            "lease": LEASE,
            "reads": reads,
            **more,
        }
        arguments = ["-m", "tests.support.conversation_program", json.dumps(job)]
        with anyio.fail_after(90), start_python(self.folder, arguments, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    async def until(self, is_so: Callable[[Conversation], bool]) -> None:
        """Wait until the stored conversation fulfils a condition."""
        with anyio.fail_after(60):
            while not is_so(await self.store.get(self.conversation)):  # noqa: ASYNC110 - it is in another process
                await anyio.sleep(0.02)

    async def read(self) -> Conversation:
        """Return the conversation as read by a program without a turn."""
        async with DialClient(ScriptedProvider([])) as dial:
            return await ConversationManager(dial, self.store).get(self.conversation)

    async def continue_conversation(self) -> tuple[Message, ...]:
        """Run another turn, and return the messages of its model request."""
        model = ScriptedProvider(["Where were we?"])
        with anyio.fail_after(60):
            async with DialClient(model, servers={"counting": server(str(self.folder / "ran"))}) as dial:
                manager = ConversationManager(dial, self.store, lease=LEASE)
                assert (await manager.chat(self.conversation, "Are you there?")).text == "Where were we?"
        [request] = model.requests
        messages = request.messages
        stored = apply_edits(await self.store.get(self.conversation))
        assert stored.messages == (*messages, Message.assistant("Where were we?"))
        assert repair_history(stored.messages) == stored.messages
        assert (stored.turn, stored.unfinished) == ("", ())
        return messages


@pytest.fixture(params=DATABASES)
async def scene(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> AsyncIterator[Scene]:
    async with place(request.param[1], tmp_path) as where:
        store = SQLStore(where)
        yield Scene(tmp_path, where, store, (await store.create()).id)
        await store.aclose()


async def printed(process: subprocess.Popen[str], kind: str, role: str | None = None) -> None:
    """Wait until the program has printed an event of the kind, and of the role of its message if given."""
    assert process.stdout is not None
    while True:
        event = json.loads(await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True))
        if event["type"] == kind and (role is None or event["message"]["role"] == role):
            return


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_a_program_killed_before_the_reply(scene: Scene) -> None:
    async with scene.talker(HANG) as process:
        await printed(process, "round_started")
    read = await scene.read()
    assert texts(read.messages) == ["Do it!"]
    assert texts(await scene.continue_conversation()) == ["Do it!", "Are you there?"]


async def test_a_program_killed_while_the_model_writes(scene: Scene) -> None:
    async with scene.talker({"text": "One, two, three", "chunk_size": 5} | HANG):
        await scene.until(lambda stored: bool(stored.unfinished))
        running = await scene.read()
        assert (running.running, texts(running.messages)) == (True, ["Do it!"])
    expected = ["Do it!", f"One, two, three\n\n{CUT_OFF}"]
    await scene.until(lambda stored: not stored.running)
    read = await scene.read()
    assert texts(read.messages) == expected
    assert read.notes == (
        "the last turn was interrupted: its program ended in the middle of it, or could not store the rest",
    )
    assert texts(await scene.continue_conversation()) == [*expected, "Are you there?"]
    assert (await scene.read()).notes == ()


async def test_a_program_killed_while_a_tool_runs(scene: Scene) -> None:
    async with scene.talker(BOTH):
        await scene.until(lambda stored: bool(stored.unfinished) and sorted(scene.ran) == ["echo", "stall"])
    await scene.until(lambda stored: not stored.running)
    expected = ["Do it!", "Let me see.", "echoed", INTERRUPTED]
    assert texts((await scene.read()).messages) == expected
    assert texts(await scene.continue_conversation()) == [*expected, "Are you there?"]
    assert sorted(scene.ran) == ["echo", "stall"]


@pytest.mark.parametrize("background_after", [0, 60])
async def test_a_program_killed_while_a_server_works_on_a_task(scene: Scene, background_after: int) -> None:
    """The next program polls the task; `tasks.py` is started by both programs, and keeps its tasks in a file."""
    file = scene.folder / "tasks.json"
    entry = python_server(HERE / "tasks.py", str(file), "lives") | {"backgroundAfter": background_after}
    replies = [{"tool_calls": [{"name": "goes_on", "arguments": {}}]}, HANG]
    async with scene.talker(*replies, servers={"jobs": entry}):
        await scene.until(lambda stored: any(message.entry is not None for message in stored.messages))
        if background_after == 0:
            await scene.until(lambda stored: any(message.role is Role.TOOL for message in stored.messages))
    await scene.until(lambda stored: not stored.running)
    file.with_suffix(".end").touch()

    def reply(request: ModelRequest) -> Any:
        call = re.search(r"Background call (\w+): still running", " ".join(texts(request.messages)))
        if call is not None and "ended" not in request.messages[-1].text:
            return {"tool_calls": [{"name": "wait_for_call", "arguments": {"id": call[1]}}]}
        return "It is done."

    with anyio.fail_after(60):
        async with DialClient(ScriptedProvider(reply), servers={"jobs": entry}) as dial:
            turn = await ConversationManager(dial, scene.store, lease=LEASE).chat(scene.conversation, "Is it done?")
    assert turn.text == "It is done."
    assert "goes_on done in" in turn.messages[-2].text
    assert list(json.loads(file.read_text())) == ["task-1"], "the call was made once"


async def test_a_program_killed_right_after_a_tool_started(scene: Scene) -> None:
    async with scene.talker({"tool_calls": BOTH["tool_calls"][1:]}):
        while scene.ran != ["stall"]:  # noqa: ASYNC110 - it is in another process
            await anyio.sleep(0.01)
    await scene.until(lambda stored: not stored.running)
    read = await scene.read()
    assert texts(read.messages) == ["Do it!", "", INTERRUPTED]
    assert read.messages[2].is_error
    assert texts(await scene.continue_conversation()) == ["Do it!", "", INTERRUPTED, "Are you there?"]
    assert scene.ran == ["stall"]


async def test_a_program_killed_between_two_rounds(scene: Scene) -> None:
    async with scene.talker(ECHO, HANG) as process:
        await printed(process, "message_completed", "tool")
    expected = ["Do it!", "", "echoed"]
    await scene.until(lambda stored: not stored.running)
    assert texts((await scene.read()).messages) == expected
    assert texts(await scene.continue_conversation()) == [*expected, "Are you there?"]
    assert scene.ran == ["echo"]


async def test_a_program_killed_after_the_end_of_the_turn(scene: Scene) -> None:
    async with scene.talker(ECHO, ANSWER) as process:
        await printed(process, "finished")
    read = await scene.read()
    assert (texts(read.messages), read.running, read.notes) == (["Do it!", "", "echoed", ANSWER], False, ())
    assert texts(await scene.continue_conversation()) == ["Do it!", "", "echoed", ANSWER, "Are you there?"]


async def test_a_turn_is_stored_even_if_its_stream_is_not_read(scene: Scene) -> None:
    async with scene.talker(ECHO, ANSWER, reads=1):
        await scene.until(lambda stored: texts(apply_edits(stored).messages) == ["Do it!", "", "echoed", ANSWER])
    assert texts(await scene.continue_conversation()) == ["Do it!", "", "echoed", ANSWER, "Are you there?"]
