"""Every turn ends with a message of the model that has text, whatever stopped the turn."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from tests.inner import (
    ActiveFormat,
    CallChunk,
    ChatModel,
    Completion,
    ContextWindow,
    ConversationContext,
    Deadline,
    Event,
    FinishReason,
    Message,
    MessageCompleted,
    ModelCaller,
    NativeFormatHandler,
    Outcome,
    ProviderError,
    Reply,
    Role,
    StopReason,
    TextChunk,
    TextDelta,
    ToolCallRequest,
    ToolChoice,
    ToolSpec,
    Turn,
    TurnInstructions,
    TurnRecorder,
    finish_turn,
)
from tests.support.fakes import Model, ReceivedEvents, Step, virtual_time

pytestmark = pytest.mark.anyio

QUESTION = Message.user("What time is it?")
CALL = ToolCallRequest("1", "now", {})
RESULT = Message(Role.TOOL, "noon", tool_call_id="1", name="now")
STOP = Completion(FinishReason.STOP)
TOO_DEEP = "[Unable to complete task: too many rounds of tool calls]"
NO_ANSWER = "[Unable to complete task: the model gave no answer]"
OUT_OF_TIME = "[Unable to complete task: the time for this turn is over]"
SLOW = lambda: anyio.sleep(100)  # noqa: E731 - a step of a script


class TurnFinisher:
    """Finishes an outcome with a scripted model, and records the events."""

    def __init__(self, *replies: Sequence[Step]) -> None:
        self.model = Model(*replies)
        self.heard = ReceivedEvents()
        self.recorder = TurnRecorder()

    async def emit(self, event: Event) -> None:
        self.recorder.record(event)
        self.heard.append(event)

    async def finish(self, outcome: Outcome, *, ask_again: bool = True) -> Turn:
        tools = (ToolSpec("now", "", {}),)
        asker = ModelCaller(
            model=ChatModel(self.model, ActiveFormat(NativeFormatHandler()), ContextWindow()),
            tools=lambda: tools,
            deadline=Deadline(5),
            recorder=self.recorder,
            emit=self.emit,
            stream=True,
            instructions=TurnInstructions(guidance=""),
        )
        if outcome.reply.message.tool_calls:
            await self.emit(MessageCompleted(outcome.reply.message))

        async def ask_without_tools(context: ConversationContext) -> Reply:
            return await asker.exchange(context, ToolChoice.NONE)

        reason = await finish_turn(outcome, ask_without_tools, self.emit, self.recorder, ask_again=ask_again)
        return self.recorder.build_turn(reason)

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.heard.of(TextDelta))


def ended(text: str, reason: StopReason) -> Outcome:
    reply = Reply(Message.assistant(text), reason)
    return Outcome(ConversationContext((QUESTION, reply.message), 2), reply, reason)


def too_deep(text: str = "", *, before: str = "", calls: Sequence[ToolCallRequest] = (CALL,)) -> Outcome:
    """Return the outcome at `max_depth` after one round with the text `before`; the last reply has `text` and calls."""
    context = ConversationContext((QUESTION, Message.assistant(before, [CALL]), RESULT), 1, 1)
    return Outcome(context, Reply(Message.assistant(text, calls), None), StopReason.MAX_DEPTH)


async def test_an_answer_is_returned_unchanged() -> None:
    finisher = TurnFinisher()
    turn = await finisher.finish(ended("It is noon.", StopReason.ANSWERED))
    assert (turn.text, turn.stop_reason) == ("It is noon.", StopReason.ANSWERED)
    assert finisher.heard == [MessageCompleted(Message.assistant("It is noon."))]


@pytest.mark.parametrize("reason", [StopReason.TRUNCATED, StopReason.REFUSED])
async def test_a_truncated_or_refused_answer_is_kept_with_its_stop_reason(reason: StopReason) -> None:
    finisher = TurnFinisher()
    turn = await finisher.finish(ended("It is", reason))
    assert (turn.text, turn.stop_reason, finisher.shown) == ("It is", reason, "")


WITHOUT_WORDS = [
    (StopReason.TRUNCATED, "[Unable to complete task: the model's answer was cut off]"),
    (StopReason.REFUSED, "[Unable to complete task: the model refused to answer]"),
    (StopReason.TIMEOUT, OUT_OF_TIME),
]


@pytest.mark.parametrize(("reason", "text"), WITHOUT_WORDS, ids=[reason for reason, _ in WITHOUT_WORDS])
async def test_a_turn_that_ends_without_text_states_its_stop_reason(reason: StopReason, text: str) -> None:
    finisher = TurnFinisher()
    turn = await finisher.finish(ended(" \n", reason))
    assert (turn.text, turn.stop_reason, finisher.shown) == (text, reason, text)
    assert finisher.model.requests == []


async def test_at_the_timeout_the_text_so_far_is_kept_and_the_reason_follows() -> None:
    finisher = TurnFinisher()
    turn = await finisher.finish(ended("It is about", StopReason.TIMEOUT))
    assert (turn.text, turn.stop_reason) == (f"It is about\n\n{OUT_OF_TIME}", StopReason.TIMEOUT)
    assert finisher.shown == f"\n\n{OUT_OF_TIME}", "text that was shown is not shown again"


# --- an empty answer ------------------------------------------------------------------------------


async def test_an_empty_answer_is_requested_once_more() -> None:
    finisher = TurnFinisher([TextChunk("It is noon."), STOP])
    turn = await finisher.finish(ended("", StopReason.ANSWERED))
    assert (turn.text, turn.stop_reason) == ("It is noon.", StopReason.ANSWERED)
    [request] = finisher.model.requests
    assert request.messages == (QUESTION,), "the empty message is not sent"
    assert request.settings.tool_choice is ToolChoice.NONE
    assert turn.messages == (Message.assistant("It is noon."),)


NO_ANSWERS: list[tuple[str, list[Step]]] = [
    ("empty again", [STOP]),
    ("blank", [TextChunk(" \n"), STOP]),
    ("only calls", [CallChunk(CALL), STOP]),
    ("a provider error", [ProviderError("gone")]),
]


@pytest.mark.parametrize("reply", [reply for _, reply in NO_ANSWERS], ids=[name for name, _ in NO_ANSWERS])
async def test_a_model_with_two_empty_answers_is_not_asked_a_third_time(reply: list[Step]) -> None:
    finisher = TurnFinisher(reply)
    turn = await finisher.finish(ended("", StopReason.ANSWERED))
    assert turn.text == NO_ANSWER
    assert turn.stop_reason is not StopReason.ANSWERED
    assert len(finisher.model.requests) == 1


SECOND_ENDS: list[tuple[str, list[Step], str, StopReason]] = [
    ("cut", [TextChunk("It is"), Completion(FinishReason.LENGTH)], "It is", StopReason.TRUNCATED),
    ("refused", [TextChunk("I will not."), Completion(FinishReason.REFUSED)], "I will not.", StopReason.REFUSED),
    ("late", [TextChunk("It is"), SLOW], f"It is\n\n{OUT_OF_TIME}", StopReason.TIMEOUT),
    ("too late", [SLOW], OUT_OF_TIME, StopReason.TIMEOUT),
]  # fmt: skip


@virtual_time
@pytest.mark.parametrize(("reply", "text", "reason"), [c[1:] for c in SECOND_ENDS], ids=[c[0] for c in SECOND_ENDS])
async def test_the_second_answer_determines_the_stop_reason(reply: list[Step], text: str, reason: StopReason) -> None:
    turn = await TurnFinisher(reply).finish(ended("", StopReason.ANSWERED))
    assert (turn.text, turn.stop_reason) == (text, reason)


# --- at the maximum depth -------------------------------------------------------------------------------------


async def test_at_max_depth_the_calls_are_refused_and_the_model_is_asked_for_an_answer() -> None:
    calls = (CALL, ToolCallRequest("2", "later", {}))
    finisher = TurnFinisher([TextChunk("About noon."), STOP])
    outcome = too_deep("One more look.", calls=calls)
    turn = await finisher.finish(outcome)
    assert (turn.text, turn.stop_reason, turn.depth) == ("About noon.", StopReason.MAX_DEPTH, 1)
    asked, first, second, answer = turn.messages
    assert asked.tool_calls == calls
    assert [(message.tool_call_id, message.name, message.is_error) for message in (first, second)] == [
        ("1", "now", True),
        ("2", "later", True),
    ]
    assert first.text.startswith("Not run: too many rounds of tool calls")
    assert answer == Message.assistant("About noon.")
    [request] = finisher.model.requests
    assert request.messages == (*outcome.context.messages, asked, first, second)
    assert request.settings.tool_choice is ToolChoice.NONE


FAILING: list[tuple[str, list[Step], str, StopReason]] = [
    ("empty", [STOP], TOO_DEEP, StopReason.MAX_DEPTH),
    ("calls again", [CallChunk(CALL), STOP], TOO_DEEP, StopReason.MAX_DEPTH),
    ("a provider error", [ProviderError("gone")], TOO_DEEP, StopReason.MAX_DEPTH),
    ("cut at once", [Completion(FinishReason.LENGTH)], TOO_DEEP, StopReason.MAX_DEPTH),
    ("too late", [SLOW], OUT_OF_TIME, StopReason.TIMEOUT),
]


@virtual_time
@pytest.mark.parametrize("text", ["", "Let me look."], ids=["no text before", "text before"])
@pytest.mark.parametrize(("reply", "why", "reason"), [c[1:] for c in FAILING], ids=[c[0] for c in FAILING])
async def test_at_max_depth_without_an_answer_the_reason_follows_the_text_so_far(
    reply: list[Step], why: str, reason: StopReason, text: str
) -> None:
    finisher = TurnFinisher(reply)
    turn = await finisher.finish(too_deep(text))
    assert turn.text == (f"{text}\n\n{why}" if text else why)
    assert turn.stop_reason is reason
    assert finisher.shown.endswith(why)


async def test_the_text_so_far_may_be_from_an_earlier_round() -> None:
    turn = await TurnFinisher([STOP]).finish(too_deep("", before="It is past eleven."))
    assert turn.text == f"It is past eleven.\n\n{TOO_DEEP}"


async def test_the_text_of_an_earlier_turn_is_not_repeated() -> None:
    outcome = too_deep()
    context = ConversationContext((QUESTION, Message.assistant("Eleven."), *outcome.context.messages), 1, 1)
    turn = await TurnFinisher([STOP]).finish(Outcome(context, outcome.reply, StopReason.MAX_DEPTH))
    assert turn.text == TOO_DEEP


CUT: list[tuple[str, list[Step]]] = [
    ("broke off", [TextChunk("It is about"), ProviderError("gone")]),
    ("ended without a completion", [TextChunk("It is about")]),
    ("too long", [TextChunk("It is about"), Completion(FinishReason.LENGTH)]),
]


@pytest.mark.parametrize("reply", [reply for _, reply in CUT], ids=[name for name, _ in CUT])
async def test_at_max_depth_a_truncated_answer_is_kept_and_the_reason_follows(reply: list[Step]) -> None:
    finisher = TurnFinisher(reply)
    turn = await finisher.finish(too_deep("Let me look."))
    assert (turn.text, turn.stop_reason) == (f"It is about\n\n{TOO_DEEP}", StopReason.MAX_DEPTH)
    assert finisher.shown == turn.text


async def test_a_second_answer_that_is_interrupted_is_kept_as_a_truncated_answer() -> None:
    turn = await TurnFinisher([TextChunk("It is about"), ProviderError("gone")]).finish(ended("", StopReason.ANSWERED))
    assert (turn.text, turn.stop_reason) == ("It is about", StopReason.TRUNCATED)


@virtual_time
async def test_text_that_was_shown_before_the_timeout_is_kept() -> None:
    turn = await TurnFinisher([TextChunk("It is about"), SLOW]).finish(too_deep())
    assert (turn.text, turn.stop_reason) == (f"It is about\n\n{OUT_OF_TIME}", StopReason.TIMEOUT)


async def test_without_ask_again_the_model_is_not_asked_for_an_answer() -> None:
    finisher = TurnFinisher()
    turn = await finisher.finish(too_deep("Let me look."), ask_again=False)
    assert (turn.text, turn.stop_reason) == (f"Let me look.\n\n{TOO_DEEP}", StopReason.MAX_DEPTH)
    assert finisher.model.requests == []
    assert [message.role for message in turn.messages] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


async def test_the_last_message_of_a_failed_turn_has_no_echo_and_no_calls() -> None:
    turn = await TurnFinisher([Completion(FinishReason.STOP, echo={"k": 1})]).finish(too_deep())
    assert turn.message.echo is None
    assert turn.message.tool_calls == ()


@pytest.mark.parametrize(
    "outcome",
    [ended("noon", StopReason.ANSWERED), ended("", StopReason.ANSWERED), ended("", StopReason.TIMEOUT), too_deep()],
    ids=["an answer", "an empty answer", "out of time", "too deep"],
)
@pytest.mark.parametrize(
    "reply",
    [[TextChunk("noon"), STOP], [STOP], [ProviderError("gone")]],
    ids=["an answer", "an empty answer", "an error"],
)
async def test_a_turn_always_ends_with_an_assistant_message_that_has_text(outcome: Outcome, reply: list[Step]) -> None:
    turn = await TurnFinisher(reply).finish(outcome)
    assert turn.text.strip()
    assert turn.messages[-1] == turn.message
    assert turn.message.role is Role.ASSISTANT
