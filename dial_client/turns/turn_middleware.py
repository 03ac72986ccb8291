"""Runs a turn through the middleware, whose return value becomes the turn's result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from dial_client.hooks.middleware import MiddlewareChain, TurnRequest
from dial_client.messages.events import MessageCompleted, RoundStarted, TextDelta
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Role
from dial_client.messages.model import ModelInfo
from dial_client.messages.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle


async def run_in_middleware(
    middleware: MiddlewareChain,
    request: TurnRequest,
    info: ModelInfo,
    turn: TurnHandle,
    run: Callable[[TurnRequest], Awaitable[StopReason]],
) -> StopReason:
    """Run a turn through the middleware and return why it ended; set ``turn.replacement`` if the result was changed.

    Args:
        middleware: Wraps the turn.
        request: The turn.
        info: Describes the turn's model.
        turn: Receives the events of the turn, or of the middleware's messages if the middleware answers by itself.
        run: Runs the turn.

    Raises:
        MiddlewareError: A middleware failed.
    """
    recorded: Turn | None = None

    async def run_to_end(request: TurnRequest) -> Turn:
        nonlocal recorded
        reason = await run(request)
        recorded = turn.recorder.build_turn(reason)
        return recorded

    result = await middleware.run_turn(request, info, run_to_end)
    if recorded is None:
        result = await _emit_answer(result, turn)
    if result is not recorded:
        turn.replacement = result if recorded is None else _with_last_message(result, recorded)
    return result.stop_reason


async def _emit_answer(result: Turn, turn: TurnHandle) -> Turn:
    """Emit the messages of a turn that the middleware answered by itself, as one round; return it with its question."""
    question = turn.recorder.question
    messages = result.messages or (result.message,)
    if question and messages[: len(question)] == question:
        messages = messages[len(question) :]
    await turn.emit(RoundStarted(0))
    for message in messages:
        if message.role is Role.ASSISTANT and message.text:
            await turn.emit(TextDelta(message.text))
        await turn.emit(MessageCompleted(message))
    return replace(result, messages=(*question, *messages))


def _with_last_message(result: Turn, recorded: Turn) -> Turn:
    """Return the result; if only its `message` was changed, the last of its `messages` is replaced to match."""
    is_recorded_last = recorded.messages[-1:] == (recorded.message,)
    if result.message == recorded.message or result.messages != recorded.messages or not is_recorded_last:
        return result
    return replace(result, messages=(*recorded.messages[:-1], result.message))
