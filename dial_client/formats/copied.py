"""Calls a model prints because a tool's result shows them: that a page says what to call is no reason to call it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from dial_client.formats.reader import Reading, read_reply
from dial_client.messages import ToolCallRequest, ToolSpec

_FENCE = "`"


def uncopied(
    found: Sequence[ToolCallRequest], results: Iterable[str], tools: Sequence[ToolSpec]
) -> list[ToolCallRequest]:
    """Give the printed calls that stand, in whatever dialect, in none of the results the model has read.

    Args:
        found: calls that were found in a reply's text; the wire's own are not doubted.
        results: the text of the results.
        tools: what was on offer.
    """
    if not found:
        return []
    shown = {_key(call) for text in results for call in _printed_in(text, tools)}
    return [call for call in found if _key(call) not in shown]


def _printed_in(text: str, tools: Sequence[ToolSpec]) -> Iterable[ToolCallRequest]:
    """Read a result as if the model had said it: as it stands, and without the marks that make code of it."""
    for said in dict.fromkeys((text, text.replace(_FENCE, ""))):
        yield from read_reply(Reading(tools, careful=True), said)[0]


def _key(call: ToolCallRequest) -> tuple[str, str]:
    return call.name, json.dumps(dict(call.arguments), sort_keys=True, default=str)
