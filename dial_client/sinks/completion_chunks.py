"""The ``chat.completion.chunk`` objects of OpenAI's chat completions API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.messages.limits import StopReason

_FINISH_REASONS: Mapping[StopReason, str] = {
    StopReason.ANSWERED: "stop",
    StopReason.CLIENT_TOOL_CALLS: "tool_calls",
    StopReason.REFUSED: "content_filter",
}


def finish_reason(stop_reason: StopReason) -> str:
    """Return the ``finish_reason`` of a turn; ``length`` for all turns without a complete answer."""
    return _FINISH_REASONS.get(stop_reason, "length")


def build_chunk(
    head: Mapping[str, Any], delta: Mapping[str, Any], stop_reason: StopReason | None = None
) -> dict[str, Any]:
    """Return one chunk.

    Args:
        head: The fields that all chunks of a completion share.
        delta: The fields that the chunk adds to the message.
        stop_reason: The reason why the turn ended; None for all chunks but the last.
    """
    reason = None if stop_reason is None else finish_reason(stop_reason)
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**head, "choices": [choice]}
