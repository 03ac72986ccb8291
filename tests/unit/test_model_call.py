"""One model call: the request, the streamed events, and the meaning of the reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    CallChunk,
    Completion,
    ConversationContext,
    FinishReason,
    Message,
    MessageCompleted,
    ModelSettings,
    ProviderError,
    ProviderState,
    ReasoningChunk,
    ReasoningDelta,
    Reply,
    Role,
    RoundStarted,
    StatusChanged,
    StopReason,
    TextChunk,
    TextDelta,
    ToolCallRequest,
    ToolChoice,
    ToolSpec,
    Usage,
    XMLFormatHandler,
    model_call,
    resolve,
    status_text,
)
from tests.support.fakes import Step, unhurried, virtual_time
from tests.support.model_calls import NOW, QUESTION, STOP, Exchange


def calling(*ids: str) -> list[Step]:
    return [CallChunk(ToolCallRequest(id_, "now", {})) for id_ in ids]


@pytest.mark.anyio
async def test_an_answer_is_streamed_and_its_message_is_not_yet_completed() -> None:
    exchange = Exchange([TextChunk("It is "), ReasoningChunk("hm"), TextChunk("noon."), STOP])
    reply = await exchange.ask()
    assert reply == Reply(Message.assistant("It is noon."), StopReason.ANSWERED)
    assert exchange.heard == [
        RoundStarted(0),
        StatusChanged(status_text.ANALYZING),
        StatusChanged(status_text.FORMULATING),
        TextDelta("It is "),
        ReasoningDelta("hm"),
        TextDelta("noon."),
    ]
    assert exchange.model.open_streams == 0


@pytest.mark.anyio
@pytest.mark.parametrize(("depth", "before"), [(0, status_text.ANALYZING), (1, status_text.PROCESSING)])
async def test_the_first_text_of_a_round_sets_the_status_once(depth: int, before: str) -> None:
    exchange = Exchange([ReasoningChunk("hm"), TextChunk("It is "), TextChunk("noon."), STOP])
    await exchange.ask(depth=depth)
    assert [event.text for event in exchange.heard.of(StatusChanged)] == [before, status_text.FORMULATING]
    at = exchange.heard.index(StatusChanged(status_text.FORMULATING))
    assert exchange.heard[at - 1 : at + 2 : 2] == [ReasoningDelta("hm"), TextDelta("It is ")]


@pytest.mark.anyio
async def test_calls_after_text_set_the_status_to_selecting_tools() -> None:
    exchange = Exchange([TextChunk("Let me see."), *calling("1"), STOP], [*calling("1"), STOP])
    await exchange.ask()
    await exchange.ask()
    texts = [event.text for event in exchange.heard.of(StatusChanged)]
    assert texts == [
        status_text.ANALYZING, status_text.FORMULATING, status_text.SELECTING,
        status_text.ANALYZING, status_text.SELECTING,
    ]  # fmt: skip


@pytest.mark.anyio
async def test_a_reply_with_calls_is_a_completed_message_without_a_stop_reason() -> None:
    exchange = Exchange(
        [TextChunk("Let me see."), *calling("1", "2"), Completion(FinishReason.TOOL_CALLS, echo={"k": 1})]
    )
    reply = await exchange.ask()
    assert reply.stop_reason is None
    assert reply.message.tool_calls == (ToolCallRequest("1", "now", {}), ToolCallRequest("2", "now", {}))
    assert reply.message.text == "Let me see."
    assert reply.message.echo == ProviderState("stand-in", {"k": 1})
    assert exchange.heard[-2:] == [StatusChanged(status_text.SELECTING), MessageCompleted(reply.message)]


@pytest.mark.anyio
async def test_the_model_gets_the_whole_conversation_and_the_current_tools() -> None:
    exchange = Exchange([STOP], [STOP], stream=False)
    await exchange.ask(0, QUESTION, Message.assistant("Why?"), Message.user("Because."))
    exchange.tools = ()
    await exchange.ask()
    first, second = exchange.model.requests
    assert first.messages == (QUESTION, Message.assistant("Why?"), Message.user("Because."))
    assert (first.tools, first.settings.tool_choice, first.stream) == ((NOW,), None, False)
    assert second.tools == ()


ENDINGS: list[tuple[str, list[Step], StopReason | None, str]] = [
    ("answered", [TextChunk("noon"), STOP], StopReason.ANSWERED, "noon"),
    ("empty", [STOP], StopReason.ANSWERED, ""),
    ("calls, with the finish reason stop", [*calling("1"), STOP], None, ""),
    (
        "no calls, with the finish reason tool_calls",
        [TextChunk("noon"), Completion(FinishReason.TOOL_CALLS)],
        StopReason.ANSWERED,
        "noon",
    ),
    ("length limit", [TextChunk("no"), Completion(FinishReason.LENGTH)], StopReason.TRUNCATED, "no"),
    ("length limit, with calls", [*calling("1"), Completion(FinishReason.LENGTH)], StopReason.TRUNCATED, ""),
    ("refused", [TextChunk("I will not."), Completion(FinishReason.REFUSED)], StopReason.REFUSED, "I will not."),
    ("refused, with calls", [*calling("1"), Completion(FinishReason.REFUSED)], StopReason.REFUSED, ""),
    ("cut off", [TextChunk("no"), Completion(FinishReason.CUT)], StopReason.TRUNCATED, "no"),
    ("cut off, with calls", [*calling("1"), Completion(FinishReason.CUT)], StopReason.TRUNCATED, ""),
    ("no completion", [TextChunk("no"), *calling("1")], StopReason.TRUNCATED, "no"),
    ("an empty stream", [], StopReason.TRUNCATED, ""),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("reply", "reason", "text"), [case[1:] for case in ENDINGS], ids=[case[0] for case in ENDINGS])
async def test_only_a_complete_reply_has_calls(reply: list[Step], reason: StopReason | None, text: str) -> None:
    exchange = Exchange(reply)
    answered = await exchange.ask()
    assert (answered.stop_reason, answered.message.text) == (reason, text)
    assert bool(answered.message.tool_calls) == (reason is None)
    assert bool(exchange.heard.of(MessageCompleted)) == (reason is None)


@pytest.mark.anyio
@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CUT, FinishReason.REFUSED])
async def test_an_incomplete_reply_has_no_echo(finish: FinishReason) -> None:
    reply = await Exchange([TextChunk("no"), Completion(finish, echo={"k": 1})]).ask()
    assert reply.message.echo is None


@pytest.mark.anyio
async def test_usage_and_notes_are_recorded() -> None:
    exchange = Exchange([Completion(FinishReason.STOP, Usage(10, 5), notes=("temperature was dropped",))])
    await exchange.ask()
    turn = exchange.recorder.build_turn(StopReason.ANSWERED)
    assert (turn.usage, turn.notes) == (Usage(10, 5), ("temperature was dropped",))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("completion", "notes"),
    [
        (Completion(FinishReason.LENGTH), ("the reply met the limit of its length",)),
        (Completion(FinishReason.LENGTH, notes=("it repeats itself",)), ("it repeats itself",)),
        (Completion(FinishReason.CUT), ("the reply broke off: the endpoint closed it before its end",)),
        (Completion(FinishReason.CUT, notes=("the connection broke",)), ("the connection broke",)),
    ],
)
async def test_an_answer_that_is_cut_off_gets_a_note(completion: Completion, notes: tuple[str, ...]) -> None:
    exchange = Exchange([TextChunk("no"), completion])
    await exchange.ask()
    assert exchange.recorder.build_turn(StopReason.TRUNCATED).notes == notes


@unhurried
@given(
    st.lists(st.sampled_from(["", "a", "a_1", "a_2", "a_1_2", "call", "call_0", "call_1", "call_2", "b"]), max_size=6)
)
def test_the_calls_of_one_reply_have_different_ids(ids: list[str]) -> None:
    calls = model_call._with_distinct_ids([ToolCallRequest(id_, "now", {}) for id_ in ids])
    assert len({call.id for call in calls}) == len(ids)
    assert all(call.id for call in calls)
    firsts = [ids.index(id_) == at for at, id_ in enumerate(ids)]
    assert all(call.id == id_ for call, id_, first in zip(calls, ids, firsts, strict=True) if first and id_)


@pytest.mark.anyio
async def test_calls_with_the_same_id_are_all_kept() -> None:
    reply = await Exchange([*calling("1", "1", ""), STOP]).ask()
    assert len({call.id for call in reply.message.tool_calls}) == 3


# --- calls in the text ----------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_text_format_offers_tools_and_reads_calls_as_text() -> None:
    markup = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    exchange = Exchange([TextChunk("I look. " + markup[:20]), TextChunk(markup[20:]), STOP], handler=XMLFormatHandler())
    reply = await exchange.ask()
    assert [call.name for call in reply.message.tool_calls] == ["now"]
    [request] = exchange.model.requests
    assert request.tools == ()
    assert "Tells the time." in request.instruction_text
    shown = "".join(event.text for event in exchange.heard.of(TextDelta))
    assert shown.strip() == "I look."
    assert reply.message.text == shown


@pytest.mark.anyio
async def test_calls_of_the_api_take_precedence_over_calls_in_the_text() -> None:
    markup = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    reply = await Exchange([TextChunk(markup), *calling("1"), STOP]).ask()
    assert [call.id for call in reply.message.tool_calls] == ["1"]


@pytest.mark.anyio
async def test_text_that_resembles_an_unfinished_call_is_shown_at_the_end() -> None:
    exchange = Exchange([TextChunk("Is 1 <tool"), STOP])
    reply = await exchange.ask()
    assert reply == Reply(Message.assistant("Is 1 <tool"), StopReason.ANSWERED)
    assert "".join(event.text for event in exchange.heard.of(TextDelta)) == "Is 1 <tool"


# --- an answer without calls ---------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_request_for_an_answer_offers_tools_but_forbids_calls() -> None:
    exchange = Exchange([TextChunk("noon"), STOP])
    assert await exchange.ask_for_answer() == Reply(Message.assistant("noon"), StopReason.ANSWERED)
    [request] = exchange.model.requests
    assert (request.tools, request.settings.tool_choice) == ((NOW,), ToolChoice.NONE)


@pytest.mark.anyio
async def test_a_request_for_an_answer_in_a_text_format_offers_no_tool() -> None:
    exchange = Exchange([TextChunk("noon"), STOP], handler=XMLFormatHandler())
    await exchange.ask_for_answer()
    [request] = exchange.model.requests
    assert "now" not in "".join((request.instruction_text, *(message.text for message in request.messages)))


@pytest.mark.anyio
async def test_calls_in_the_reply_to_a_request_for_an_answer_are_dropped() -> None:
    exchange = Exchange([TextChunk("noon"), *calling("1"), Completion(FinishReason.TOOL_CALLS, echo={"k": 1})])
    assert await exchange.ask_for_answer() == Reply(Message.assistant("noon"), StopReason.ANSWERED)
    assert exchange.heard.of(MessageCompleted) == []


@pytest.mark.anyio
async def test_the_reply_to_a_request_for_an_answer_may_be_truncated() -> None:
    reply = await Exchange([TextChunk("no"), Completion(FinishReason.LENGTH)]).ask_for_answer()
    assert reply == Reply(Message.assistant("no"), StopReason.TRUNCATED)


# --- time, errors, cancellation -------------------------------------------------------------------


@virtual_time
@pytest.mark.anyio
async def test_at_the_timeout_the_text_so_far_is_kept_and_no_call_is_run() -> None:
    exchange = Exchange(
        [TextChunk("It is "), *calling("1"), lambda: anyio.sleep(100), TextChunk("noon"), STOP], seconds=5
    )
    reply = await exchange.ask()
    assert reply == Reply(Message.assistant("It is "), StopReason.TIMEOUT)
    assert exchange.model.open_streams == 0


@virtual_time
@pytest.mark.anyio
async def test_a_model_that_never_replies_ends_with_a_timeout() -> None:
    exchange = Exchange([anyio.sleep_forever], seconds=5)
    assert await exchange.ask() == Reply(Message.assistant(""), StopReason.TIMEOUT)


@pytest.mark.anyio
async def test_a_provider_error_is_raised_and_the_stream_is_closed() -> None:
    exchange = Exchange([TextChunk("It is "), ProviderError("gone", code="cut")])
    with pytest.raises(ProviderError, match="gone"):
        await exchange.ask()
    assert exchange.model.open_streams == 0


@pytest.mark.anyio
async def test_a_cancelled_model_call_closes_the_stream() -> None:
    speaking = anyio.Event()

    async def begins_and_hangs() -> None:
        speaking.set()
        await anyio.sleep_forever()

    exchange = Exchange([TextChunk("It is "), begins_and_hangs])
    async with anyio.create_task_group() as group:
        group.start_soon(exchange.ask)
        await speaking.wait()
        assert exchange.model.open_streams == 1
        group.cancel_scope.cancel()
    assert exchange.model.open_streams == 0


@pytest.mark.anyio
async def test_a_turn_of_the_maximum_depth_fits_on_the_stack_with_a_model_caller() -> None:
    exchange = Exchange(*([*calling("1"), STOP] for _ in range(101)))

    async def call_tools(calls: Sequence[ToolCallRequest]) -> list[Message]:
        return [Message(Role.TOOL, "done", tool_call_id=call.id, name=call.name) for call in calls]

    outcome = await resolve(ConversationContext((QUESTION,), 100), exchange.asker.exchange, call_tools)
    assert (outcome.stop_reason, outcome.context.depth) == (StopReason.MAX_DEPTH, 100)


# --- status texts -------------------------------------------------------------------


USING: list[tuple[str, ToolSpec | None, str]] = [
    ("lookup_tool", None, "Using Lookup Tool…"),
    ("clock__now", ToolSpec("clock__now", "", {}, tool="now"), "Using Now…"),
    ("now", ToolSpec("now", "", {}, tool="now", title="Tell the time"), "Using Tell the time…"),
    ("read-file", None, "Using Read File…"),
]


@pytest.mark.parametrize(("name", "spec", "sentence"), USING, ids=[name for name, _, _ in USING])
def test_the_status_of_a_call_contains_the_title_or_the_name_of_the_tool(
    name: str, spec: ToolSpec | None, sentence: str
) -> None:
    assert status_text.describe_tool(ToolCallRequest("1", name, {}), spec) == sentence


@pytest.mark.anyio
async def test_the_settings_of_a_turn_are_sent_and_a_call_is_forced_in_its_first_reply_only() -> None:
    exchange = Exchange([*calling("1"), STOP], [STOP], [STOP])
    settings = ModelSettings(temperature=0.5, max_tokens=100, tool_choice="now")
    caller = replace(exchange.asker, settings=settings)
    await caller.exchange(ConversationContext((QUESTION,), 5))
    await caller.exchange(ConversationContext((QUESTION,), 5, 1))
    await caller.exchange(ConversationContext((QUESTION,), 5), ToolChoice.NONE)
    first, later, last = (request.settings for request in exchange.model.requests)
    assert first == settings
    assert later == replace(settings, tool_choice=None)
    assert last == replace(settings, tool_choice=ToolChoice.NONE)


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_what_precedes_the_end_of_reasoning_alone_is_reasoning(stream: bool) -> None:
    pieces = (
        ["They ask for ", "the time.", "</think>\n\nIt is ", "noon."]
        if stream
        else ["They ask.</think>\n\nIt is noon."]
    )
    exchange = Exchange([*map(TextChunk, pieces), STOP], stream=stream)
    reply = await exchange.ask()

    assert reply == Reply(Message.assistant("It is noon."), StopReason.ANSWERED)
    reasoning = "".join(event.text for event in exchange.heard.of(ReasoningDelta))
    assert reasoning == ("They ask for the time." if stream else "They ask.")


@pytest.mark.anyio
async def test_a_round_says_whether_calls_can_follow_its_text() -> None:
    exchange = Exchange([TextChunk("Yes."), STOP], [TextChunk("Yes."), STOP], [TextChunk("Yes."), STOP])
    await exchange.ask()
    await exchange.ask_for_answer()
    exchange.tools = ()
    await exchange.ask()
    assert [event.may_call for event in exchange.heard.of(RoundStarted)] == [True, False, False]


@pytest.mark.anyio
async def test_a_call_after_text_that_was_announced_as_the_answer_is_dropped() -> None:
    exchange = Exchange([TextChunk("Yes."), *calling("1"), STOP])
    exchange.tools = ()
    reply = await exchange.ask()
    assert reply == Reply(Message.assistant("Yes."), StopReason.ANSWERED)
