"""Agents of a turn whose process ended: the resumed turn goes on within them, and makes no call twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import (
    Agent,
    Approval,
    ApprovalContext,
    ConversationManager,
    DialClient,
    MemoryStore,
    SQLStore,
    StopReason,
    ToolCallRequest,
    ToolSpec,
    Turn,
)
from dial_client.testing import ScriptedProvider
from tests.inner import INTERRUPTED

pytestmark = pytest.mark.anyio

AGENTS = [
    Agent("lead", "Leads.", tools=["functions/*", "agents/worker"]),
    Agent("worker", "Works.", tools=["functions/*"]),
]


def call(name: str, id_: str = "call_1", **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments, "id": id_}]}


class Work:
    """Functions that count their calls, of which one does not end."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.is_blocked = True
        self.reached = anyio.Event()

    async def read(self, path: str) -> str:
        """Read a file."""
        self.ran.append(f"read {path}")
        return f"text of {path}"

    async def send(self) -> str:
        """Send a letter."""
        self.ran.append("send")
        if self.is_blocked:
            self.reached.set()
            await anyio.sleep_forever()
        return "sent"


async def interrupt(
    store: MemoryStore, work: Work, replies: list[Any], approve: Any = None, text: str = "go on"
) -> str:
    """Run a turn until a call does not end, leave it as a killed process would, and return its conversation's id."""
    tools: list[Any] = [work.read, work.send]
    async with DialClient(ScriptedProvider(replies), agents=AGENTS, tools=tools, approve=approve) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        turn = await manager.start(conversation.id, text)
        with anyio.fail_after(60):
            await work.reached.wait()
        turn.abandon()
        await turn.stop()
    work.is_blocked = False
    work.reached = anyio.Event()
    return conversation.id


async def resume(
    store: MemoryStore, work: Work, id_: str, replies: list[Any], approve: Any = None
) -> tuple[Turn, ScriptedProvider]:
    model = ScriptedProvider(replies)
    tools: list[Any] = [work.read, work.send]
    async with DialClient(model, agents=AGENTS, tools=tools, approve=approve) as dial:
        turn = await ConversationManager(dial, store).resume(id_)
        assert turn is not None
        with anyio.fail_after(60):
            return await turn.result(), model


async def test_a_resumed_turn_goes_on_within_an_agent_and_repeats_none_of_its_calls() -> None:
    store, work = MemoryStore(), Work()
    replies = [call("lead", task="Work."), call("read", "call_a", path="a"), call("send", "call_b")]
    id_ = await interrupt(store, work, replies)
    turn, model = await resume(store, work, id_, ["It may have been sent.", "Done."])
    assert work.ran == ["read a", "send"]
    assert turn.text == "Done."
    assert turn.tool_calls[0].result.content == "It may have been sent."
    asked = [(message.role.value, message.text) for message in model.requests[0].messages]
    assert asked == [
        ("user", "Work."),
        ("assistant", ""),
        ("tool", "text of a"),
        ("assistant", ""),
        ("tool", INTERRUPTED),
    ]


async def test_a_call_of_an_agent_that_waited_for_approval_is_asked_about_again_and_runs_once() -> None:
    store, work, asked = MemoryStore(), Work(), list[str]()
    work.is_blocked = False

    async def wait(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        work.reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def allow(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(f"{context.agent}: {tool.name}")
        return Approval("once")

    id_ = await interrupt(store, work, [call("lead", task="Send."), call("send")], wait)
    turn, _ = await resume(store, work, id_, ["Sent.", "Done."], allow)
    assert (work.ran, asked) == (["send"], ["main > lead: send"])
    assert turn.tool_calls[0].result.content == "Sent."


async def test_a_conversation_whose_agent_waited_when_its_program_was_killed_says_what_is_asked() -> None:
    store, work = MemoryStore(), Work()
    work.is_blocked = False

    async def wait(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        work.reached.set()
        await anyio.sleep_forever()
        raise AssertionError

    calls = [call("lead", task="Send."), call("worker", "w", task="Send."), call("send")]
    id_ = await interrupt(store, work, calls, wait)
    async with client(work, ["Sent.", "Led.", "Done."], wait) as dial:
        manager = ConversationManager(dial, store)
        (pending,) = (await manager.get(id_)).pending_approvals
        turn = await manager.resume(id_, decisions={pending.id: "once"})
        assert turn is not None
        with anyio.fail_after(60):
            ended = await turn.result()
    assert (pending.call.name, pending.agent) == ("send", "main > lead > worker")
    assert (ended.text, work.ran) == ("Done.", ["send"])


async def test_a_conversation_whose_agent_was_at_work_when_its_program_was_killed_asks_nothing() -> None:
    store, work = MemoryStore(), Work()
    id_ = await interrupt(store, work, [call("lead", task="Send."), call("send")])
    async with DialClient(ScriptedProvider([]), agents=AGENTS) as dial:
        assert (await ConversationManager(dial, store).get(id_)).pending_approvals == ()


async def test_agents_of_agents_and_agents_of_the_user_go_on_too() -> None:
    store, work = MemoryStore(), Work()
    replies = [call("worker", "call_w", task="Send."), call("read", path="a"), call("send", "call_s")]
    id_ = await interrupt(store, work, replies, text="@lead Work.")
    turn, model = await resume(store, work, id_, ["Perhaps.", "Led.", "Done."])
    assert (work.ran, turn.text) == (["read a", "send"], "Done.")
    assert [record.result.content for record in turn.tool_calls] == ["Led."]
    assert model.requests[1].messages[-1].text == "Perhaps."


async def test_a_turn_that_is_interrupted_twice_goes_on_where_it_was() -> None:
    store, work = MemoryStore(), Work()
    id_ = await interrupt(store, work, [call("lead", task="Work."), call("send")])
    work.is_blocked = True
    tools: list[Any] = [work.read, work.send]
    async with DialClient(ScriptedProvider([call("send", "call_2")]), agents=AGENTS, tools=tools) as dial:
        again = await ConversationManager(dial, store).resume(id_)
        assert again is not None
        with anyio.fail_after(60):
            await work.reached.wait()
        again.abandon()
        await again.stop()
    work.is_blocked = False
    turn, model = await resume(store, work, id_, ["Perhaps.", "Done."])
    assert (work.ran, turn.text) == (["send", "send"], "Done.")
    assert [message.role.value for message in model.requests[0].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


async def test_another_question_after_an_interrupted_agent_begins_anew() -> None:
    store, work = MemoryStore(), Work()
    id_ = await interrupt(store, work, [call("lead", task="Work."), call("send")])
    async with DialClient(ScriptedProvider(["Hello."]), agents=AGENTS) as dial:
        manager = ConversationManager(dial, store)
        turn = await manager.chat(id_, "Hello?")
        messages = (await manager.get(id_)).messages
    assert (turn.text, work.ran) == ("Hello.", ["send"])
    assert [message.text for message in messages if message.role.value == "tool"] == [INTERRUPTED]


# --- decisions that come later --------------------------------------------------------------------

TWO = {"tool_calls": [{"name": "read", "arguments": {"path": path}, "id": path} for path in "ab"]}
# The model asks the lead, the lead asks the worker, and both want to read before the worker's calls have ended.
LATER = [call("lead", task="Work."), call("worker", "w", task="Read."), TWO]


async def defer(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    return Approval("defer")


def client(work: Work, replies: list[Any], approve: Any = defer) -> DialClient:
    work.is_blocked = False
    tools: list[Any] = [work.read, work.send]
    return DialClient(ScriptedProvider(replies), agents=AGENTS, tools=tools, approve=approve)


async def test_a_turn_waits_for_a_later_decision_about_a_call_of_an_agent_and_goes_on_in_the_agent() -> None:
    work, later = Work(), Work()
    async with client(work, LATER) as dial:
        waiting = await dial.run("go on")
    assert (waiting.stop_reason, work.ran) == (StopReason.AWAITING_APPROVAL, [])
    first, second = waiting.pending_approvals
    assert [first.agent, second.agent] == ["main > lead > worker"] * 2
    assert [dict(asked.call.arguments) for asked in (first, second)] == [{"path": "a"}, {"path": "b"}]
    stored = Turn.from_dict(json.loads(json.dumps(waiting.to_dict())))
    async with client(later, ["Read.", "Led.", "Done."]) as dial:
        half = await dial.resume(stored, {first.id: Approval("once", decided_by="ann")})
        assert (half.stop_reason, later.ran) == (StopReason.AWAITING_APPROVAL, ["read a"])
        (left,) = half.pending_approvals
        assert (left.id, left.call) == (second.id, second.call)
        ended = await dial.resume(half, {left.id: "deny"})
    assert (ended.text, ended.pending_approvals, later.ran) == ("Done.", (), ["read a"])
    assert [record.result.content for record in ended.tool_calls] == ["Led."]
    assert [message.role.value for message in ended.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # for the database
async def test_an_agent_that_waits_is_stored_and_another_program_decides(tmp_path: Path) -> None:
    store, work, later = SQLStore(tmp_path / "talk.db"), Work(), Work()
    async with client(work, LATER) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        await manager.chat(conversation.id, "go on")
    model = ScriptedProvider(["Read.", "Led.", "Done."])
    later.is_blocked = False
    tools: list[Any] = [later.read, later.send]
    async with DialClient(model, agents=AGENTS, tools=tools, approve=defer) as dial:
        manager = ConversationManager(dial, store)
        pending = (await manager.get(conversation.id)).pending_approvals
        resumed = await manager.resume(conversation.id, decisions={asked.id: "once" for asked in pending})
        assert resumed is not None
        turn = await resumed.result()
        again = await manager.resume(conversation.id, decisions={pending[0].id: "once"})
        messages = (await manager.get(conversation.id)).messages
    assert (turn.text, again, later.ran) == ("Done.", None, ["read a", "read b"])
    assert [message.text for message in model.requests[0].messages][-2:] == ["text of a", "text of b"]
    assert [message.text for message in messages] == ["go on", "", "Led.", "Done."]
    await store.aclose()


async def test_an_agent_that_waits_is_given_up_by_another_question() -> None:
    store, work = MemoryStore(), Work()
    async with client(work, [*LATER, "As you like."]) as dial:
        manager = ConversationManager(dial, store)
        conversation = await manager.create()
        await manager.chat(conversation.id, "go on")
        turn = await manager.chat(conversation.id, "Never mind.")
        read = await manager.get(conversation.id)
    assert (turn.text, read.pending_approvals, work.ran) == ("As you like.", (), [])
    assert "has not ended" in read.messages[2].text
