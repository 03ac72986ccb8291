"""The sentences of `StatusChanged` events."""

from __future__ import annotations

import math

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import to_one_line

ANALYZING = "Analyzing request…"
SELECTING = "Selecting tools…"
PROCESSING = "Processing results…"
CORRECTING = "Correcting the form of the answer…"
FORMULATING = "Formulating response…"
QUEUED = "Waiting until other turns have ended…"
WAITING_FOR_BACKGROUND = "Waiting for calls in the background…"
STORING = "The conversation cannot be stored; trying again…"
_CODES = {
    ANALYZING: "analyzing",
    SELECTING: "selecting",
    PROCESSING: "processing",
    CORRECTING: "correcting",
    FORMULATING: "formulating",
    QUEUED: "queued",
    STORING: "storing",
    WAITING_FOR_BACKGROUND: "background",
}
_USING = compile_lazily(r"Using (.+)…")
_MAX_NAME_CHARS = 100


def describe_wait(why: str, seconds: float) -> str:
    """Return the status for the wait before a failed request to the model's endpoint is retried."""
    return f"The model's endpoint {why}; trying again in {math.ceil(seconds)} s…"


def describe_tool(call: ToolCallRequest, spec: ToolSpec | None) -> str:
    """Return a sentence with the tool's title, or its name in title case ("Using Lookup Tool…")."""
    title = spec.title if spec is not None and spec.title else None
    name = to_one_line(spec.tool if spec is not None else call.name, _MAX_NAME_CHARS)
    return f"Using {to_one_line(title or '', _MAX_NAME_CHARS) or name.replace('_', ' ').replace('-', ' ').title()}…"


def find_code(text: str) -> dict[str, str]:
    """Return the code of a sentence of this module, for programs that show it in another language.

    Examples are ``{"code": "analyzing"}`` and ``{"code": "using", "tool": "Lookup Tool"}``. For any other sentence the
    result is empty.
    """
    if using := _USING.fullmatch(text):
        return {"code": "using", "tool": using[1]}
    return {"code": _CODES[text]} if text in _CODES else {}
