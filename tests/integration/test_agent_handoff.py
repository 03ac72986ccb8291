"""Agents that take a conversation over, until they hand it back, with rights that only become fewer."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import (
    Agent,
    AgentChanged,
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    ConversationManager,
    DialClient,
    Limits,
    MemoryStore,
    Message,
    ToolCallRequest,
    ToolSpec,
)
from dial_client.testing import ScriptedProvider
from tests.inner import find_agent
from tests.support.servers.launch import raw

pytestmark = pytest.mark.anyio

TEACHER = Agent("teacher", "Teaches.", system="Teach.", tools=["functions/read"], handoff=True)
HAND_OVER = {"tool_calls": [{"name": "teacher", "arguments": {}}]}
HAND_BACK = {"tool_calls": [{"name": "hand_back", "arguments": {}}]}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def read() -> str:
    """Read a file."""
    return "text"


def write() -> str:
    """Write a file."""
    return "wrote"


def list_offers(model: ScriptedProvider) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in model.requests]


async def test_the_conversation_goes_on_with_the_agent_and_its_tools_and_instructions() -> None:
    own = ScriptedProvider(["Read this.", "Good.", "Yes."])
    model = ScriptedProvider([HAND_OVER])
    agent = Agent("teacher", "Teaches.", system="Teach.", model=own, tools=["functions/read"], handoff=True)
    async with DialClient(model, agents=[agent], tools=[read, write], system="Be short.") as dial:
        first = await dial.run("Teach me.")
        second = await dial.run("I have read it.", history=first.messages)
    assert (first.text, first.agent, second.text, second.agent) == ("Read this.", "teacher", "Good.", "teacher")
    assert [message.agent for message in first.messages] == ["", "", "teacher", "teacher"]
    assert list_offers(model) == [["read", "teacher", "write"]]
    assert list_offers(own) == [["read", "hand_back"], ["read", "hand_back"]]
    assert "Teach." in str(own.requests[0]) and "Be short." not in str(own.requests[0])
    assert [message.text for message in own.requests[0].messages if message.role.value == "user"] == ["Teach me."]


async def test_the_agent_hands_the_conversation_back() -> None:
    model = ScriptedProvider([HAND_OVER, HAND_BACK, "I am back.", "Still here."])
    async with DialClient(model, agents=[TEACHER], tools=[read, write]) as dial:
        events = [event async for event in dial.stream("Teach me.")]
        turn = events[-1].turn  # type: ignore[union-attr]
        await dial.run("Go on.", history=turn.messages)
    assert [event.agent for event in events if isinstance(event, AgentChanged)] == ["teacher", ""]
    assert (turn.text, turn.agent) == ("I am back.", "")
    usual = ["read", "teacher", "write"]
    assert list_offers(model) == [usual, ["read", "hand_back"], usual, usual]


async def test_the_user_hands_the_conversation_over_and_back() -> None:
    model = ScriptedProvider(["Read this.", "I am back."])
    async with DialClient(model, agents=[TEACHER], tools=[read]) as dial:
        first = await dial.run("@teacher I want to learn.")
        second = await dial.run("@main Enough.", history=first.messages)
    assert (first.agent, second.agent, second.text) == ("teacher", "", "I am back.")
    assert list_offers(model) == [["read", "hand_back"], ["read", "teacher"]]


async def test_a_handoff_never_adds_rights() -> None:
    model = ScriptedProvider([HAND_OVER, "Done."])
    agent = Agent("teacher", "Teaches.", tools=["*"], limits=Limits(max_depth=50, max_tokens_total=500), handoff=True)
    limits = Limits(max_tokens_total=100)
    async with DialClient(model, agents=[agent], tools=[read, write]) as dial:
        turn = await dial.run("Teach me.", tools=["functions/read", "agents/*", "!functions/write"], limits=limits)
    assert turn.agent == "teacher"
    assert list_offers(model) == [["read", "teacher"], ["read", "hand_back"]]


async def test_a_call_of_an_agent_that_has_the_conversation_is_asked_about_with_its_path() -> None:
    asked: list[tuple[str, str]] = []

    async def approve(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append((tool.name, context.agent))
        return Approval("deny")

    model = ScriptedProvider([HAND_OVER, call("read"), "No.", call("read"), "No."])
    async with DialClient(model, agents=[TEACHER], tools=[read], approve=approve) as dial:
        first = await dial.run("Teach me.")
        await dial.run("Go on.", history=first.messages)
    assert asked == [("read", "main > teacher")] * 2


async def test_a_rule_forbids_a_handoff() -> None:
    model = ScriptedProvider([HAND_OVER, "Done."])
    async with DialClient(model, agents=[TEACHER], approval=ApprovalPolicy(deny=["agents/teacher"])) as dial:
        assert (await dial.run("Teach me.")).agent == ""


async def test_taint_stays_with_the_conversation() -> None:
    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "mail": raw(auto_approve=("*",))}
    why: list[tuple[str, str]] = []

    async def approve(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        why.append((context.agent, context.why_asked))
        return Approval("deny")

    agent = Agent("teacher", "Teaches.", tools=["mail/*"], handoff=True)
    model = ScriptedProvider([call("web__echo"), HAND_OVER, call("mail__echo"), "No.", call("mail__echo"), "No."])
    async with DialClient(model, agents=[agent], servers=servers, approve=approve) as dial:
        first = await dial.run("go on")
        unmarked = [Message.from_dict(message.to_dict() | {"taint": ""}) for message in first.messages]
        await dial.run("go on", history=unmarked)
    assert [path for path, _ in why] == ["main > teacher"] * 2
    assert all("web/echo" in reason for _, reason in why)


async def test_a_stored_conversation_stays_with_its_agent_and_undo_gives_it_back() -> None:
    model = ScriptedProvider([HAND_OVER, "Read this.", "Good.", "Hello."])
    async with DialClient(model, agents=[TEACHER], tools=[read]) as dial:
        store = MemoryStore()
        manager = ConversationManager(dial, store)
        stored = await manager.create()
        await manager.chat(stored.id, "Teach me.")
        assert (await ConversationManager(dial, store).chat(stored.id, "I have read it.")).agent == "teacher"
        assert find_agent((await manager.get(stored.id)).messages) == "teacher"
        await manager.undo(stored.id)
        await manager.undo(stored.id)
        turn = await manager.chat(stored.id, "Hello.")
    assert (turn.text, turn.agent) == ("Hello.", "")


async def test_an_agent_that_is_gone_or_cannot_be_opened_leaves_the_conversation_to_the_model() -> None:
    model = ScriptedProvider([HAND_OVER, "Read this.", "Hello.", "Hello."])
    async with DialClient(model, agents=[TEACHER]) as dial:
        first = await dial.run("Teach me.")
        dial.use_agents([])
        second = await dial.run("Go on.", history=first.messages)
        dial.use_agents([Agent("teacher", "Teaches.", model="nobody:x", handoff=True)])
        third = await dial.run("Go on.", history=first.messages)
    assert (second.agent, third.agent) == ("", "")
    assert "it is gone" in second.notes[0]
    assert "nobody" in third.notes[0]


async def test_agents_that_work_on_tasks_hand_nothing_over() -> None:
    lead = Agent("lead", "Leads.", tools=["*", "agents/*"])
    model = ScriptedProvider([call("lead", task="Work."), "Led.", "Done."])
    async with DialClient(model, agents=[TEACHER, lead], tools=[read]) as dial:
        await dial.run("go on")
    assert list_offers(model)[1] == ["read"]


async def test_an_agent_hands_the_conversation_on_to_those_that_it_names() -> None:
    agents = [
        Agent("teacher", "Teaches.", tools=["agents/examiner"], handoff=True),
        Agent("examiner", "Examines.", tools=[], handoff=True),
    ]
    model = ScriptedProvider([HAND_OVER, call("examiner"), "What is two plus two?"])
    async with DialClient(model, agents=agents) as dial:
        turn = await dial.run("Teach me.")
    assert turn.agent == "examiner"
    assert list_offers(model) == [["examiner", "teacher"], ["examiner", "hand_back"], ["hand_back"]]
