"""Repair of the names of called tools: endpoints leave parts of a model's own syntax in them.

``functions.add``, ``default_api:add``, ``add<|channel|>commentary`` and ``functions.add:0`` become ``add`` if that is
the name of exactly one offered tool. A name that is offered, or fits none, is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from dial_client.messages.message import ToolCallRequest

# The namespaces of models' own syntaxes: OpenAI's and Kimi's, Gemini's, and those of chat templates.
_NAMESPACE = re.compile(r"(?:functions?|default_api|tools?|tool_code|multi_tool_use|api)(?:::|[.:/])", re.IGNORECASE)
# Special tokens, and all that follows the first of them.
_TOKENS = re.compile(r"\s*<(?:[|\uff5c]|/?\w+>).*", re.DOTALL)
# Kimi numbers the calls of a reply behind their names.
_NUMBER = re.compile(r":\d{1,4}\Z")


def repair_names(calls: Sequence[ToolCallRequest], offered: Collection[str]) -> list[ToolCallRequest]:
    """Return the calls with the names of offered tools, where exactly one fits."""
    return [call if call.name in offered else replace(call, name=_find_name(call.name, offered)) for call in calls]


def _find_name(written: str, offered: Collection[str]) -> str:
    name = _TOKENS.sub("", written).strip(" \t\r\n\"'`")
    forms = {name, _NUMBER.sub("", name)}
    forms |= {_NAMESPACE.sub("", form, count=1) for form in forms if _NAMESPACE.match(form)}
    # A tool whose name has dots is offered without them.
    forms |= {re.sub(r"[^a-zA-Z0-9_-]", "_", form) for form in forms}
    fitting = forms.intersection(offered)
    return fitting.pop() if len(fitting) == 1 else written
