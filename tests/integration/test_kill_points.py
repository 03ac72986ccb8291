"""A program that is killed at different moments leaves a valid conversation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.inner import Message, Role, ScriptedProvider, SQLStore, repair_conversation
from tests.support.managed_conversations import assert_valid, managed
from tests.support.program import start_python

pytestmark = pytest.mark.anyio

THIS_PROGRAM_IS_KILLED = """
import json, sys
import anyio
from mcp.server import MCPServer
from dial_client import ConversationManager, DialClient, MessageCompleted, SQLStore, ToolCallRequest
from dial_client.messages.model import ModelInfo, CallChunk, Completion, FinishReason, TextChunk

server = MCPServer("calculator")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

class Model:
    info = ModelInfo("tiny")

    async def generate(self, request):
        if request.messages[-1].role == "user":
            yield CallChunk(ToolCallRequest("call_1", "add", {"a": 1, "b": 2}))
            yield CallChunk(ToolCallRequest("call_2", "add", {"a": 3, "b": 4}))
        else:
            for word in ("three ", "and ", "seven"):
                yield TextChunk(word)
        yield Completion(FinishReason.STOP)

    async def aclose(self):
        pass

def say(what):
    print(json.dumps(what), flush=True)

async def main(file, conversation_id):
    async with DialClient(Model(), servers={"calculator": server}) as dial:
        manager = ConversationManager(dial, SQLStore.sqlite(file), lease=0.5)
        for n in range(1000):
            async for event in manager.stream_chat(conversation_id, f"question {n}"):
                say(event.message.to_dict() if isinstance(event, MessageCompleted) else None)

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


@pytest.mark.parametrize("lines", [1, 4, 8, 20, 45])
async def test_a_killed_program_leaves_a_valid_conversation(tmp_path: Path, lines: int) -> None:
    store = SQLStore.sqlite(tmp_path / "talk.db")
    made = await store.create()
    program = start_python(
        tmp_path, ["-c", THIS_PROGRAM_IS_KILLED, str(tmp_path / "talk.db"), made.id], stdout=subprocess.PIPE, text=True
    )
    with anyio.fail_after(60):
        printed = await anyio.to_thread.run_sync(first_lines, program, lines)
    messages = [Message.from_dict(data) for data in map(json.loads, printed) if data]
    with anyio.fail_after(30):
        while (read := await store.get(made.id)).running:  # noqa: ASYNC110 - until the lease of the killed program expires
            await anyio.sleep(0.02)
    stored = read.messages
    added = [message for message in stored if message.role is not Role.USER and message.entry is None]
    assert added[: len(messages)] == messages
    history = repair_conversation(read).messages
    assert_valid(history)
    model = ScriptedProvider(["Where were we?"])
    async with managed(store, model) as manager:
        await manager.chat(made.id, "Are you there?")
    assert model.requests[0].messages == (*history, Message.user("Are you there?"))
    assert (await store.get(made.id)).messages[: len(stored)] == stored
    await store.aclose()


def first_lines(program: subprocess.Popen[str], count: int) -> list[str]:
    """Kill a program after it has printed `count` lines, and return all complete lines that it printed."""
    with program as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout.readlines()
    return [line for line in lines if line.endswith("\n")]
