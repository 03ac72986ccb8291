"""A turn inside its middleware: what the middleware returns becomes the result of the turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from dial_client.messages.message import Role
from dial_client.middleware import MiddlewareChain, TurnRequest
from dial_client.model import ModelInfo
from dial_client.turn_data.events import MessageCompleted, RoundStarted, TextDelta
from dial_client.turn_data.limits import StopReason
from dial_client.turn_data.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle


async def run_in_middleware(
    middleware: MiddlewareChain,
    request: TurnRequest,
    info: ModelInfo,
    turn: TurnHandle,
    run: Callable[[TurnRequest], Awaitable[StopReason]],
) -> StopReason:
    """Run a turn through the middleware, and return why it ended; ``turn.replacement`` is set if the result is another.

    Args:
        middleware: is around the turn.
        request: the turn.
        info: what is known of its model.
        turn: receives the events; where the middleware answers alone, those of its messages.
        run: runs the turn.

    Raises:
        MiddlewareError: a middleware failed.
    """
    own: Turn | None = None

    async def run_to_end(request: TurnRequest) -> Turn:
        nonlocal own
        reason = await run(request)
        own = turn.recorder.turn(reason)
        return own

    result = await middleware.run_turn(request, info, run_to_end)
    if own is None:
        await _emit_messages(result, turn)
    if result is not own:
        turn.replacement = result if own is None else _with_last_message(result, own)
    return result.stop_reason


async def _emit_messages(result: Turn, turn: TurnHandle) -> None:
    """Emit the messages of a turn that the middleware answered, as those of a round."""
    await turn.emit(RoundStarted(0))
    for message in result.messages or (result.message,):
        if message.role is Role.ASSISTANT and message.text:
            await turn.emit(TextDelta(message.text))
        await turn.emit(MessageCompleted(message))


def _with_last_message(result: Turn, own: Turn) -> Turn:
    """Return a changed turn whose messages end with its message, as those of every turn."""
    if result.message == own.message or result.messages != own.messages or own.messages[-1:] != (own.message,):
        return result
    return replace(result, messages=(*own.messages[:-1], result.message))
