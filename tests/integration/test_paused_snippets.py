"""A program that waits for a person: stored with the turn, resumed later by any process, and no call is made twice."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import (
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    ConversationManager,
    DialClient,
    SQLStore,
    StopReason,
    ToolCallRequest,
    ToolSpec,
    Turn,
    TurnHandle,
)
from dial_client.extend import TurnObserver
from dial_client.testing import ScriptedProvider
from tests.inner import sandbox
from tests.support.audit_logs import Entries
from tests.support.code_mode import later, program
from tests.support.snippet_program import SnippetJob

pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("keys")]

SOURCE = """
import asyncio
print("begun")
first = await read(number=1)
rows = await asyncio.gather(*[read(number=n) for n in range(2, 5)], send(text=f"first is {first}"))
print(rows)
try:
    await fail()
except RuntimeError as error:
    print(error)
await send(text="the second")
sum(rows[:3])
"""


class World:
    """The tools, and what they have done."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.sent: list[str] = []

    def tools(self) -> list[Any]:
        def read(number: int) -> int:
            """Read a number."""
            self.read.append(number)
            return number * 10

        def send(text: str) -> str:
            """Send a text."""
            self.sent.append(text)
            return "sent"

        def fail() -> None:
            """Fail."""
            raise KeyError

        return [read, send, fail]


def open_client(world: World, *replies: Any, recorder: Entries | None = None, approve: Any = later) -> DialClient:
    """Return a client in which only reading needs no approval."""
    approval = ApprovalPolicy(allow=("functions/read", "functions/fail"))
    model = ScriptedProvider(list(replies))
    return DialClient(
        model, tools=world.tools(), tool_format="code", approve=approve, approval=approval, audit=recorder
    )


async def pause(world: World, recorder: Entries | None = None, source: str = SOURCE) -> Any:
    """Return a turn that waits, in the JSON in which a program stores it."""
    async with open_client(world, program(source), recorder=recorder) as dial:
        turn = await dial.run("go on")
    assert turn.stop_reason is StopReason.AWAITING_APPROVAL
    return json.loads(json.dumps(turn.to_dict()))


def answer_of(turn: Turn) -> str:
    return next(message.text for message in turn.messages if message.tool_call_id == "call_1")


async def test_a_program_waits_for_a_later_decision_and_goes_on_in_another_client() -> None:
    world, recorder = World(), Entries()
    stored = Turn.from_dict(await pause(world, recorder))
    assert sorted(world.read) == [1, 2, 3, 4]
    assert world.sent == []
    [asked] = stored.pending_approvals
    assert (asked.tool, dict(asked.call.arguments)) == ("send", {"text": "first is 10"})
    async with open_client(world, recorder=recorder) as dial:
        again = await dial.resume(stored, {asked.id: "once"})
    assert again.stop_reason is StopReason.AWAITING_APPROVAL
    assert world.sent == ["first is 10"]
    [second] = again.pending_approvals
    async with open_client(world, "All done.", recorder=recorder) as dial:
        ended = await dial.resume(Turn.from_dict(again.to_dict()), {second.id: "once"})
    assert ended.text == "All done."
    assert answer_of(ended) == "begun\n[20, 30, 40, 'sent']\nfail: The tool failed: KeyError.\n90"
    assert sorted(world.read) == [1, 2, 3, 4]
    assert world.sent == ["first is 10", "the second"]
    ran = [entry.call for entry in recorder if entry.event == "call" and entry.outcome in ("ok", "tool_error")]
    assert sorted(call for call in ran if "/" in call) == [f"call_1/{n}" for n in range(1, 8)]


async def test_a_paused_program_goes_on_also_while_a_worker_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.Sandbox, "warm", sandbox.Sandbox._prepare_spare)
    world = World()
    stored = Turn.from_dict(await pause(world, source="await send(text='a')"))
    [asked] = stored.pending_approvals
    async with open_client(world, "Done.") as dial:
        ended = await dial.resume(stored, {asked.id: "once"})
    assert answer_of(ended) == "sent"
    assert world.sent == ["a"]


async def test_a_denied_call_is_an_exception_of_the_program_that_goes_on() -> None:
    world = World()
    source = "try:\n    await send(text='a')\nexcept PermissionError as error:\n    print(error)\nawait read(number=1)"
    stored = Turn.from_dict(await pause(world, source=source))
    [asked] = stored.pending_approvals
    async with open_client(world, "Done.") as dial:
        ended = await dial.resume(stored, {asked.id: Approval("deny", "not now")})
    assert answer_of(ended) == "send: The user did not allow this call: not now.\n10"
    assert world.sent == []


async def test_an_approval_does_not_hold_for_other_arguments() -> None:
    world = World()
    data = await pause(world, source="await send(text='a')")
    changed = json.loads(json.dumps(data).replace('"text": "a"', '"text": "b"'))
    stored = Turn.from_dict(changed)
    [asked] = stored.pending_approvals
    async with open_client(world, "Done.") as dial:
        ended = await dial.resume(stored, {asked.id: "once"})
    assert world.sent == []
    assert "cannot go on" in answer_of(ended)


@pytest.mark.parametrize("part", ["state", "source", "printed", "taint", "interpreter", "host", "seal", "waiting"])
async def test_a_stored_program_that_was_changed_is_not_loaded(part: str) -> None:
    world = World()
    data = await pause(world, source="await send(text='a')")
    [message] = [message for message in data["messages"] if message.get("pending")]
    value = message["pending"]["snippet"][part]
    message["pending"]["snippet"][part] = [] if isinstance(value, list) else f"{value[:-4]}AAA="
    stored = Turn.from_dict(data)
    [asked] = stored.pending_approvals
    async with open_client(world, "Done.") as dial:
        ended = await dial.resume(stored, {asked.id: "once"})
    assert "cannot go on" in answer_of(ended)
    assert ended.text == "Done."
    assert world.sent == []


async def test_a_program_of_another_user_is_not_loaded(keys: Path) -> None:
    world = World()
    stored = Turn.from_dict(await pause(world, source="await send(text='a')"))
    (keys / "seal.key").write_bytes(b"k" * 32)
    [asked] = stored.pending_approvals
    async with open_client(world, "Done.") as dial:
        ended = await dial.resume(stored, {asked.id: "once"})
    assert "another user" in answer_of(ended)
    assert world.sent == []


async def test_a_program_of_a_turn_that_is_no_longer_in_code_mode_ends_with_a_word() -> None:
    world = World()
    stored = Turn.from_dict(await pause(world, source="await send(text='a')"))
    [asked] = stored.pending_approvals
    async with DialClient(ScriptedProvider(["Done."]), tools=world.tools(), approve=later) as dial:
        ended = await dial.resume(stored, {asked.id: "once"})
    assert "There is no tool 'run_code'" in answer_of(ended)
    assert world.sent == []


async def test_a_program_does_not_call_a_tool_that_has_gone_since_it_was_paused() -> None:
    world = World()
    stored = Turn.from_dict(await pause(world, source="await send(text='a')"))
    [asked] = stored.pending_approvals
    tools = [tool for tool in world.tools() if tool.__name__ != "send"]
    model = ScriptedProvider(["Done."])
    async with DialClient(model, tools=tools, tool_format="code", approve=later) as dial:
        ended = await dial.resume(stored, {asked.id: "once"})
    assert "NameError: send" in answer_of(ended)
    assert world.sent == []


async def test_an_approval_does_not_hold_for_a_tool_that_has_changed_since() -> None:
    world = World()
    stored = Turn.from_dict(await pause(world, source="await send(text='a')"))
    [asked] = stored.pending_approvals

    def send(text: str, to: str = "everybody") -> str:
        """Send a text to everybody."""
        world.sent.append(f"{to}: {text}")
        return "sent"

    model = ScriptedProvider(["Done."])
    async with DialClient(model, tools=[send], tool_format="code", approve=later) as dial:
        again = await dial.resume(stored, {asked.id: "once"})
    assert again.stop_reason is StopReason.AWAITING_APPROVAL
    assert world.sent == []


async def test_a_program_with_too_many_variables_fails_and_does_not_wait() -> None:
    world = World()
    source = "rows = [str(n) * 100 for n in range(4_000)]\nawait send(text='a')\nrows[0]"
    async with open_client(world, program(source), "Done.") as dial:
        turn = await dial.run("go on")
    assert turn.stop_reason is StopReason.ANSWERED
    assert "too large to be stored" in answer_of(turn)


async def test_the_answer_to_a_question_that_was_changed_is_not_used() -> None:
    world = World()
    data = await pause(world, source="await send(text='a')")
    [message] = [message for message in data["messages"] if message.get("pending")]
    message["pending"]["call"]["arguments"]["text"] = "something harmless"
    stored = Turn.from_dict(data)
    [asked] = stored.pending_approvals
    async with open_client(world) as dial:
        again = await dial.resume(stored, {asked.id: "once"})
    assert again.stop_reason is StopReason.AWAITING_APPROVAL
    assert dict(again.pending_approvals[0].call.arguments) == {"text": "a"}
    assert world.sent == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_a_stored_conversation_goes_on_with_the_answer(tmp_path: Path) -> None:
    world = World()
    async with SQLStore(f"sqlite:///{tmp_path}/talk.db") as store, open_client(world, program(SOURCE)) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        await manager.chat(conversation.id, "go on")
    assert sorted(world.read) == [1, 2, 3, 4]
    async with (
        SQLStore(f"sqlite:///{tmp_path}/talk.db") as store,
        open_client(world, "All done.", approve=None) as dial,
    ):
        manager = ConversationManager(dial, store)
        [asked] = (await manager.get(conversation.id)).pending_approvals
        handle = await manager.resume(conversation.id, {asked.id: "once"})
        assert handle is not None
        assert (await handle.result()).text == "All done."
    assert sorted(world.read) == [1, 2, 3, 4]
    assert world.sent == ["first is 10", "the second"]


class HeldCalls(TurnObserver):
    """Notes after each change which calls of the model wait, with the words of the question if they have not run."""

    def __init__(self, world: World) -> None:
        self.noted: list[tuple[str, int]] = []
        self._world = world

    async def on_held_call(self, turn: TurnHandle) -> None:
        [(call, pending)] = turn.recorder.held_calls or [(None, None)]
        if call is not None and (pending is None or pending.snippet is not None):
            text = "" if pending is None else str(pending.call.arguments["text"])
            self.noted.append((text, len(self._world.sent)))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
async def test_a_program_is_stored_whenever_somebody_is_asked_until_the_call_runs(tmp_path: Path) -> None:
    world = World()
    held = HeldCalls(world)
    source = """
import asyncio
for text in ["denied", "a", "b"]:
    try:
        await send(text=text)
    except PermissionError:
        pass
await asyncio.gather(send(text="c"), send(text="d"))
"""
    asked = list[tuple[str, int]]()
    answers = {"denied": "deny", "a": "once", "b": "defer", "c": "once", "d": "once"}

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(held.noted[-1])
        return Approval(answers[call.arguments["text"]])

    async with (
        SQLStore(f"sqlite:///{tmp_path}/talk.db") as store,
        open_client(world, program(source), approve=approve) as dial,
    ):
        manager = ConversationManager(dial, store, observers=[held])
        conversation = await manager.create()
        await manager.chat(conversation.id, "go on")
    assert asked == [("denied", 0), ("a", 0), ("b", 1)]
    assert list(dict.fromkeys(held.noted)) == [("denied", 0), ("a", 0), ("", 0), ("", 1), ("b", 1)]
    answers["b"] = "once"
    async with SQLStore(f"sqlite:///{tmp_path}/talk.db") as store, open_client(world, "Done.", approve=approve) as dial:
        held.noted.clear()
        handle = await ConversationManager(dial, store, observers=[held]).resume(conversation.id, {})
        assert handle is not None
        assert (await handle.result()).text == "Done."
    assert asked[3:5] == [("b", 1), ("c", 2)]
    assert list(dict.fromkeys(held.noted))[:4] == [("b", 1), ("", 1), ("", 2), ("c", 2)]
    assert world.sent == ["a", "b", "c", "d"]


async def test_a_program_that_is_stopped_while_somebody_is_asked_has_perhaps_done_some_of_its_work() -> None:
    world = World()
    is_asked = anyio.Event()

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        is_asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with open_client(world, program("await read(number=1)\nawait send(text='a')"), approve=approve) as dial:
        turn = dial.start("go on")
        with anyio.fail_after(60):
            await is_asked.wait()
        turn.cancel()
        ended = await turn.result()
    assert "It is not known whether the tool did its work." in answer_of(ended)
    assert not ended.pending_approvals


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a database needs it
@pytest.mark.parametrize("how", ["later", "asking"])
async def test_a_killed_process_leaves_a_program_that_a_later_process_ends(
    tmp_path: Path, keys: Path, how: str
) -> None:
    job = SnippetJob(tmp_path, keys)
    command = [sys.executable, "-m", "tests.support.snippet_program", str(tmp_path), str(keys), how]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(60):
            assert (await process.stdout.receive()).split()[-1] == b"waiting"
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
    made = job.list_calls()
    assert len([line for line in made if line.startswith("read")]) == 70
    assert not [line for line in made if line.startswith(("send", "publish", "forbidden"))]
    turn = await job.resume("All done.")
    assert turn.text == "All done."
    assert job.list_calls() == [*made, "send the sum is 1225"]
    text = next(message.text for message in turn.messages if message.tool_call_id == "call_1")
    assert text.splitlines() == [
        "forbidden: PermissionError",
        "fail: RuntimeError",
        "publish: PermissionError",
        "sent",
        "publish: PermissionError",
        "[1225, 190]",
    ]
    ended = [entry for entry in job.list_audit() if entry["event"] == "call" and "/" in entry["call"]]
    ran = [entry["call"] for entry in ended if entry["outcome"] in ("ok", "tool_error")]
    assert sorted(ran) == sorted(set(ran))
    assert len(ran) == 70 + 1 + 1 + 1  # the reads, the failing call, the untrusted page, and the text that was sent
    assert {entry["tool"] for entry in ended if entry["outcome"] == "denied"} == {"forbidden", "publish"}
