"""However a turn ends, and whenever it is cancelled, its conversation is complete, valid, and can be continued.

Scripted replies go to a real client with a real in-process server. The tests check the messages that the turn added, in
their stored form and in the request of each of the three model APIs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.server import MCPServer
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent
from trio.testing import MockClock

from dial_client import DialClient, Finished, Limits, Message, ProviderError, Role, StopReason
from dial_client.testing import ScriptedProvider
from tests.inner import (
    ANTHROPIC,
    CHAT,
    OPENAI,
    Approval,
    ApprovalContext,
    ApprovalPolicy,
    Delta,
    EndpointProfile,
    Event,
    MessageCompleted,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallStarted,
    ToolSpec,
    TurnHandle,
    chat_api,
    messages_api,
    responses_api,
    separate_instructions,
)
from tests.integration.test_images_and_documents import PDF, PNG
from tests.support.fakes import unhurried
from tests.unit.test_wire_history import chat_echo, messages_echo, responses_echo
from tests.unit.test_wire_history_rules import check_chat, check_messages, check_responses

ME = "scripted"
SYSTEM, QUESTION, NEXT = Message.system("Be kind."), Message.user("Go on."), Message.user("And then?")
ECHOES = {"chat": chat_echo, "responses": responses_echo, "messages": messages_echo}
MISTRAL = EndpointProfile(user_after_tool=False, short_ids=True)
SHOWN = EmbeddedResource(resource=BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob=PDF))


def tools() -> MCPServer:
    made = MCPServer("tools", log_level="CRITICAL")

    @made.tool()
    async def works(at: int = 0) -> str:
        return f"it worked ({at})"

    @made.tool()
    async def fails(at: int = 0) -> str:
        raise ValueError("the disk is full")

    @made.tool()
    async def shows(at: int = 0) -> list[TextContent | ImageContent | EmbeddedResource]:
        return [TextContent(text="Look:"), ImageContent(data=PNG, mime_type="image/png"), SHOWN]

    @made.tool()
    async def sleeps(at: int = 0) -> str:
        await anyio.sleep(3600)
        return "it slept"

    @made.tool()
    async def denied(at: int = 0) -> str:
        return "it must not run"

    @made.tool()
    async def asked(at: int = 0) -> str:
        return "it was allowed"

    return made


NAMES = ["works", "fails", "shows", "sleeps", "denied", "asked", "nobody"]


@dataclass(frozen=True)
class Story:
    """The course of a turn: replies, cancellation, limits and approver."""

    replies: Sequence[Any]
    cancelled_at: int | None = None
    """The number of events after which the turn is cancelled, or None."""
    steps: int | None = None
    """The number of steps of the event loop after which the turn is cancelled, or None."""
    stream: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)
    approver: str = "allows"
    tool_format: str | None = None


class Model:
    """A model that plays the script of the story in the first turn, and another script in later turns."""

    info = ModelInfo(ME)

    def __init__(self, replies: Sequence[Any]) -> None:
        self.model = ScriptedProvider(replies)

    def start_later_turns(self) -> None:
        self.model = ScriptedProvider([{"tool_calls": [call("works", 7)]}, "Here I am."])

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        return self.model.generate(request)

    async def aclose(self) -> None:
        """Close nothing: the model has no connections."""


@dataclass
class Ending:
    """The result of a story."""

    history: tuple[Message, ...]
    reason: StopReason | None
    """The stop reason, or None for a `ProviderError`."""
    events: list[Event]
    later: str


async def play(story: Story, limits: Limits) -> Ending:
    """Run the turn of a story, and a second turn after it."""
    model = Model(story.replies)
    turn: TurnHandle | None = None

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        await checkpoint()
        if story.approver == "leaves" and turn is not None:
            turn.cancel()
        return Approval("deny" if story.approver == "denies" else "once")

    seen: list[Event] = []
    approval = ApprovalPolicy(deny=["denied"])
    options: dict[str, Any] = {"limits": limits, "approve": approve, "approval": approval}
    async with DialClient(model, servers={"tools": tools()}, tool_format=story.tool_format, **options) as dial:
        turn = dial.start((SYSTEM, QUESTION), stream=story.stream)
        try:
            async with aclosing(turn.events()) as events:
                for _ in range(story.steps or 0):
                    await checkpoint()
                if story.steps is not None:
                    turn.cancel()
                async for event in events:
                    seen.append(event)
                    if len(seen) == story.cancelled_at:
                        turn.cancel()
            done = await turn.result()
            added, reason = done.messages, done.stop_reason
        except ProviderError as error:
            added, reason = error.messages, None
        model.start_later_turns()
        history = (SYSTEM, *added)
        later = await dial.run((*history, NEXT), limits=Limits())  # the story's time limit may be over before an answer
    return Ending(history, reason, seen, later.text)


QUICK = {"timeout": 0.5, "tool_timeout": 0.02}


def played(story: Story, backend: str) -> Ending:
    """Play a story on its own event loop; the time of trio is virtual."""
    options = {"clock": MockClock(autojump_threshold=0)} if backend == "trio" else {}
    limits = Limits(**story.limits)
    return anyio.run(play, story, limits, backend=backend, backend_options=options)


# --- checks ---------------------------------------------------------------------------------------


def check_is_complete(ending: Ending) -> None:
    """Check that each call is followed by its one result, and that all results are stored."""
    open_calls: list[str] = []
    for message in ending.history:
        if message.role is Role.TOOL:
            assert message.tool_call_id == open_calls.pop(0)
            assert message.content
            continue
        assert not open_calls
        assert message.text.strip() or message.tool_calls, "nobody said nothing"
        open_calls = [request.id for request in message.tool_calls]
    assert not open_calls

    done = [event.result for event in ending.events if isinstance(event, ToolCallFinished)]
    stored = [message.content for message in ending.history if message.role is Role.TOOL]
    assert all(result.content in stored for result in done)
    announced = [event.message for event in ending.events if isinstance(event, MessageCompleted)]
    assert announced == list(ending.history[2:])


def check_keeps_shown_text(ending: Ending) -> None:
    shown = ""
    for event in ending.events:
        if isinstance(event, TextDelta):
            shown += event.text
        elif isinstance(event, MessageCompleted) and event.message.role is Role.ASSISTANT:
            assert "".join(shown.split()) in "".join(event.message.text.split())
            shown = ""
    assert not shown.strip()


def check_events_pair(ending: Ending) -> None:
    started = [event.call.id for event in ending.events if isinstance(event, ToolCallStarted)]
    finished = [event.result.tool_call_id for event in ending.events if isinstance(event, ToolCallFinished)]
    assert sorted(started) == sorted(finished)
    assert isinstance(ending.events[-1], Finished) or ending.reason is None


def check_reports_interrupted_calls(ending: Ending) -> None:
    """Check that the results of cancelled calls tell whether the calls had begun."""
    begun: set[str] = set()
    for event in ending.events:
        if isinstance(event, MessageCompleted) and event.message.tool_calls:
            begun.clear()  # ids are unique only within a round
        elif isinstance(event, ToolCallStarted):
            begun.add(event.call.id)
    asked_at = max((at for at, message in enumerate(ending.history) if message.tool_calls), default=0)
    for result in ending.history[asked_at + 1 :]:
        if result.role is Role.TOOL and result.tool_call_id not in begun:
            assert result.text.startswith("Not run: "), "it never began"
            assert result.is_error
        elif result.role is Role.TOOL and "cancelled" in result.text:
            # A call that waited for approval was announced and has not begun.
            assert result.text.startswith(("Interrupted: ", "Not run: "))
            assert result.is_error


def check_wires(history: Sequence[Message]) -> None:
    """Check that each API's requests, to the same and to another provider, are valid and contain the whole history."""
    results = sum(message.role is Role.TOOL for message in history)
    _, messages = separate_instructions((*history, NEXT))
    for name in (ME, "somebody else"):
        for profile in (CHAT, OPENAI, MISTRAL):
            sent = chat_api.to_messages(messages, name, profile)
            check_chat(sent, profile)
            assert sum(message["role"] == "tool" for message in sent) == results
        items = responses_api.to_messages(messages, name, OPENAI)
        check_responses(("", items))
        assert sum(item.get("type") == "function_call_output" for item in items) == results
        turns = messages_api.to_messages(messages, name, ANTHROPIC)
        check_messages(("", turns))
        assert json.dumps(turns).count('"type": "tool_result"') == results
    for wire in (sent, items, turns):  # requests to the other provider: they have no echo
        written = json.dumps(wire, ensure_ascii=False)
        for message in history:
            text = json.dumps(message.text.strip(), ensure_ascii=False)[1:-1]
            assert message.role is not Role.ASSISTANT or text in written


def check(ending: Ending) -> None:
    check_is_complete(ending)
    check_keeps_shown_text(ending)
    check_events_pair(ending)
    if ending.reason is StopReason.CANCELLED:
        check_reports_interrupted_calls(ending)
    check_wires(ending.history)
    assert ending.later == "Here I am."


# --- endings --------------------------------------------------------------------------------------


def call(name: str, at: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {"at": at}, **more}


def calling(*names: str, at: int = 0, **more: Any) -> dict[str, Any]:
    return {"text": "Let me see.", "tool_calls": [call(name, at) for name in names], **more}


BROKEN = {"tool_calls": [{"name": "works", "arguments": '{"at": '}]}
ENDINGS: dict[str, tuple[Story, StopReason | None]] = {
    "answered": (Story([calling("works", "fails", "nobody"), "Done."]), StopReason.ANSWERED),
    "pictures": (Story([calling("shows", "shows"), "I see."]), StopReason.ANSWERED),
    "denied": (Story([calling("denied", "asked", "works"), "Done."], approver="denies"), StopReason.ANSWERED),
    "unreadable": (Story([BROKEN, "Done."]), StopReason.ANSWERED),
    "too deep": (
        Story([*[calling("works", at=at) for at in range(3)], "So far."], limits={"max_depth": 2}), StopReason.MAX_DEPTH
    ),
    "failing": (Story([*[calling("fails", at=at) for at in range(3)], "So far."]), StopReason.CONSECUTIVE_ERRORS),
    "in circles": (Story([calling("works")] * 3), StopReason.REPEATED_CALLS),
    "too dear": (
        Story([calling("works", usage={"input_tokens": 9}), "So far."], limits={"max_tokens_total": 9}),
        StopReason.TOKEN_BUDGET,
    ),
    "too slow": (Story([{"text": "I begin", "hang": True}], limits={"timeout": 0.2}), StopReason.TIMEOUT),
    "too slow in a call": (
        Story([calling("sleeps", "works"), "Too late."], limits={"timeout": 0.2, "tool_timeout": 9}), StopReason.TIMEOUT
    ),
    "truncated": (Story([calling("works"), {"text": "Half an", "finish": "length"}]), StopReason.TRUNCATED),
    "cut": (Story([calling("works"), {"text": "Half an", "completion": False}]), StopReason.TRUNCATED),
    "refused": (Story([calling("works"), {"text": "", "finish": "refused"}]), StopReason.REFUSED),
    "says nothing": (Story([calling("works"), "", ""]), StopReason.REFUSED),
    "cancelled in the reply": (Story([{"text": "I begin", "chunk_size": 1, "hang": True}], 6), StopReason.CANCELLED),
    "cancelled before the reply": (Story([{"text": "I begin", "hang": True}], 2), StopReason.CANCELLED),
    "cancelled in the calls": (Story([calling("sleeps", "works", "sleeps")], 8), StopReason.CANCELLED),
    "cancelled at once": (Story(["Done."], steps=0), StopReason.CANCELLED),
    "cancelled when asked": (Story([calling("works", "asked")], approver="leaves"), StopReason.CANCELLED),
    "an error": (Story([{"error": {"message": "down", "status": 503}}]), None),
    "an error in a reply": (
        Story([calling("works"), {"text": "Half an", "chunk_size": 2, "error": {"message": "down"}}]), None
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_conversation_can_be_continued_after_every_kind_of_ending(name: str, stream: bool, backend: str) -> None:
    story, reason = ENDINGS[name]
    if name == "cancelled in the reply":  # a reply without streaming has no middle
        stream = True
    ending = played(replace(story, stream=stream), backend)
    assert ending.reason is reason
    check(ending)


# --- arbitrary stories ----------------------------------------------------------------------------

TEXTS = st.sampled_from(
    [
        "",
        "Well, ",
        "Let me see. ",
        "Thought: hm\nAction: works\nAction Input: {}",
        "é😀 ",
        "<tool_call>",
        '<tool_call>{"name": "fails", "arguments": {}}</tool_call>',
        "\n",
    ]
)
CALLS = st.lists(
    st.one_of(
        st.builds(call, st.sampled_from(NAMES), st.integers(0, 2)),
        st.builds(lambda id_: call("works", id=id_), st.sampled_from(["", "same", "x" * 70, "a b"])),
        st.builds(
            lambda arguments: {"name": "works", "arguments": arguments},
            st.sampled_from(['{"at": ', "[1]", "{'at': 1}"]),
        ),
        st.just({"name": "works", "arguments": {"at": "no"}}),
    ),
    max_size=4,
)
ERRORS = st.sampled_from([None, None, None, None, {"message": "down", "status": 503}])


@st.composite
def replies(draw: st.DrawFn) -> dict[str, Any]:
    reply: dict[str, Any] = {"text": draw(TEXTS) + draw(TEXTS), "reasoning": draw(TEXTS), "chunk_size": 4}
    if made := draw(CALLS):
        reply["tool_calls"] = made
        echo = draw(st.sampled_from([None, *ECHOES.values()]))
        if echo is not None:
            requests = [
                ToolCallRequest(entry.get("id", f"call_{at}"), entry["name"], {}) for at, entry in enumerate(made, 1)
            ]
            reply["echo"] = echo(requests)
    if error := draw(ERRORS):
        reply["error"] = error
    elif not made:
        reply |= draw(st.sampled_from([{}, {}, {"finish": "length"}, {"finish": "refused"}, {"completion": False}]))
    return reply


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_depth": st.integers(0, 3),
        "max_repeats": st.integers(1, 3),
        "max_consecutive_errors": st.integers(1, 3),
        "max_calls_per_round": st.integers(1, 3),
        "max_parallel": st.integers(1, 3),
        "max_result_chars": st.integers(1, 20),
    },
)
STORIES = st.builds(
    Story,
    st.tuples(st.lists(replies(), min_size=1, max_size=5), st.sampled_from([["Done."], []])).map(
        lambda two: [*two[0], *two[1]]
    ),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.none(), st.integers(0, 150)),
    stream=st.booleans(),
    limits=LIMITS,
    approver=st.sampled_from(["allows", "denies", "leaves"]),
    tool_format=st.sampled_from([None, None, "react", "xml"]),
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(unhurried)
@given(STORIES)
def test_a_conversation_can_be_continued_after_any_story(backend: str, story: Story) -> None:
    if backend == "asyncio":  # asyncio has no virtual time
        story = replace(story, limits={**QUICK, **story.limits})
    check(played(story, backend))
