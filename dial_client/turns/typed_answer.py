"""Typed answers: each answer is validated, and an invalid answer is returned to the model with its errors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dial_client.messages.events import Emit, OutputDelta, StatusChanged, TextDelta
from dial_client.messages.limits import StopReason
from dial_client.messages.message import TextPart
from dial_client.runtime.safe_text import sanitize
from dial_client.turns import status_text
from dial_client.turns.answer_format import AnswerFormat
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.model_call import ModelCaller
from dial_client.turns.output_type import InvalidOutput
from dial_client.turns.resolution import Reply
from dial_client.turns.turn_recorder import TurnRecorder

MAX_CORRECTIONS = 2
"""Maximum number of requests per turn for a corrected answer."""


@dataclass(slots=True)
class TypedCaller:
    """Asks the model for typed answers: an `Ask` of `resolution.resolve` that wraps a `ModelCaller`.

    A request for a corrected answer counts as a round. It is not stored in the conversation, which keeps only the last
    answer.
    """

    caller: ModelCaller
    answer: AnswerFormat
    corrections: int = 0
    """Number of requests for a corrected answer so far."""

    @property
    def recorder(self) -> TurnRecorder:
        """The recorder of the turn; it keeps the valid answer, or the errors of the last answer."""
        return self.caller.recorder

    async def __call__(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask the model, and request corrections of an invalid answer as long as limits allow."""
        while True:
            reply = await self.caller(context, emit)
            if not _is_answer(reply):
                return reply
            checked = await self._check(reply, emit)
            if checked is not None:
                return checked
            errors = self.recorder.output_errors or ()
            if self.corrections == MAX_CORRECTIONS or not context.may_descend:
                return await self._give_up(reply, emit)
            self.corrections += 1
            problems = "; ".join(errors)
            self.recorder.note(f"an answer was not of the requested form and was returned to the model: {problems}")
            await emit(StatusChanged(status_text.CORRECTING))
            message, correction = self.answer.build_correction(reply.message, errors)
            context = context.descend(message, (correction,))

    async def ask_without_tools(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask for the last answer at a limit; no correction is requested."""
        reply = await self.caller.ask_without_tools(context, emit)
        if not _is_answer(reply):
            return reply
        return await self._check(reply, emit) or await self._give_up(reply, emit)

    async def _check(self, reply: Reply, emit: Emit) -> Reply | None:
        """Return the reply with its answer as one line of JSON; None for an invalid answer."""
        message, output = reply.message, self.answer.output
        try:
            parsed = output.parse(message.text)
        except InvalidOutput as invalid:
            self.recorder.output_errors = invalid.errors
            return None
        self.recorder.output, self.recorder.output_errors = parsed.value, None
        text = sanitize(output.to_text(parsed.json))
        if parsed.value is None or parsed.value != self.answer.latest:
            await emit(OutputDelta(parsed.value))
        await emit(TextDelta(text))
        if isinstance(message.content, str):
            return replace(reply, message=replace(message, content=text, citations=()))
        media = (part for part in message.content if not isinstance(part, TextPart))
        return replace(reply, message=replace(message, content=(TextPart(text), *media), citations=()))

    async def _give_up(self, reply: Reply, emit: Emit) -> Reply:
        errors = self.recorder.output_errors or ()
        self.recorder.note(f"the answer is not of the requested form: {'; '.join(errors)}")
        await emit(TextDelta(reply.message.text))
        return Reply(reply.message, StopReason.INVALID_OUTPUT)


def _is_answer(reply: Reply) -> bool:
    return reply.stop_reason is StopReason.ANSWERED and bool(reply.message.text.strip())
