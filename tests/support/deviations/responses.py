"""The ends of replies of the Responses API, and their output items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.deviations.case import CALLS, DONE, REFUSED, TRUNCATED, Case, cut, same, write_reply
from tests.support.model_endpoint import Say


def response(status: str, *items: Any, **more: Any) -> Case:
    """Return a response in a terminal state, streamed and unstreamed."""
    whole = {"object": "response", "status": status, "output": list(items), **more}
    sent = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(items)]
    return Case(
        [{"wire": "responses", "events": [*sent, {"type": f"response.{status}", "response": whole}]}, DONE],
        [{"wire": "responses", "body": whole}, DONE],
    )


_PART_CALL = {"type": "function_call", "call_id": "a", "name": "echo", "arguments": '{"tex', "status": "incomplete"}
_PART_TEXT = {"type": "message", "content": [{"type": "output_text", "text": "Half"}]}
_FAILED = {"code": "server_error", "message": "out of memory"}

RESPONSES: dict[str, Case] = {
    "content_filter": write_reply("responses", Say("No", finish="content_filter"), text="No", stop=REFUSED),
    "a call cut by the limit": replace(
        response("incomplete", _PART_TEXT, _PART_CALL, incomplete_details={"reason": "max_output_tokens"}),
        text="Half",
        stop=TRUNCATED,
    ),
    "a call that is incomplete": replace(response("completed", _PART_TEXT, _PART_CALL), text="Half", stop=TRUNCATED),
    "cancelled": replace(response("cancelled", _PART_TEXT), text="Half", stop=TRUNCATED),
    "failed": replace(response("failed", error=_FAILED), text="out of memory", stop=None),
    "an error event": Case(
        [{"wire": "responses", "events": [{"type": "error", **_FAILED}]}],
        [{"wire": "responses", "body": {"error": _FAILED}}],
        text="out of memory",
        stop=None,
    ),
    "a refusal": replace(
        response("completed", {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}),
        text="I will not.",
        stop=REFUSED,
    ),
    "an unknown item": replace(response("completed", {"type": "future"}, _PART_TEXT), text="Half"),
    "cut in the text": same(cut("responses", Say("Half", pieces=1), 3), text="Half", stop=TRUNCATED),
    "cut in a call": same(cut("responses", Say("Half", CALLS, pieces=1), 6), text="Half", stop=TRUNCATED),
    "cut behind whole calls": same(cut("responses", Say("Half", CALLS, pieces=1), 10), text="Half", stop=TRUNCATED),
    "cut before a word": same(cut("responses", Say("Half"), 1), text="broke", stop=None),
}
