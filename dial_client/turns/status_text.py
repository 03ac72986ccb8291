"""What is going on, in a person's words."""

from __future__ import annotations

import math

from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.text.safe_text import one_line

ANALYZING = "Analyzing request…"
SELECTING = "Selecting tools…"
PROCESSING = "Processing results…"
FORMULATING = "Formulating response…"
_MAX_NAME = 100


def waiting(why: str, seconds: float) -> str:
    """Say that the model's endpoint could not answer and is asked again."""
    return f"The model's endpoint {why}; trying again in {math.ceil(seconds)} s…"


def using(call: ToolCallRequest, spec: ToolSpec | None) -> str:
    """Say that a tool is used: by its title, or its name in title case (``lookup_tool``: "Using Lookup Tool…")."""
    title = spec.title if spec is not None and spec.title else None
    name = one_line(spec.tool if spec is not None else call.name, _MAX_NAME)
    return f"Using {one_line(title or '', _MAX_NAME) or name.replace('_', ' ').replace('-', ' ').title()}…"
