"""Replies that are nothing but calls, without any marker: JSON, bare or in a fence, or calls as in Python."""

from __future__ import annotations

import re
from itertools import product

from dial_client.formats.json_calls import Found, whole_in_json
from dial_client.formats.non_json_calls import pythonic
from dial_client.formats.stream_buffer import StepResult
from dial_client.formats.tool_matching import OfferedTools
from dial_client.schema.json_repair import Unreadable

_LANGUAGES = ("", "json", "python", "tool_call", "tool_code", "xml")
_WRAPPERS = ("", "functools", "<tool_call>", "<tool_calls>")
_BEFORES = tuple(fence + wrapper for fence, wrapper in product(("", *(f"```{name}" for name in _LANGUAGES)), _WRAPPERS))
_LONGEST_FIRST = tuple(sorted(_BEFORES, key=len, reverse=True))
_KEYS = (
    '"arguments":',
    '"parameters":',
    "'arguments':",
    "'parameters':",
    '"type":"function"',
    '"function":{',
    '"tool_calls":[',
)
_NAMES = ('"name":"', '"function":"', "'name':'", "'function':'", 'name:"', "name:'")
_BRACES = ("{", "[{")
_ANY_CALL = tuple(brace + key for brace, key in product(_BRACES, _KEYS))
_NAMED_CALL = tuple(brace + name for brace, name in product(_BRACES, _NAMES))

_START = re.compile(r"(?:```[\w-]{0,32}+\s*+)?(?:functools)?")
_PYTHON = re.compile(r"\s*+\[\s*+[^\s{\[\"']")


def may_begin(text: str, offer: OfferedTools, *, is_asked: bool = False) -> StepResult:
    """Whether a reply that begins like this may be calls and nothing else; None where more must be seen.

    What is said of a text holds for every longer one, so it does not matter in which pieces the reply comes. Where
    calls in text were asked for, an object with a name may be one, whatever the name.
    """
    squeezed = "".join(text.split())
    if not squeezed:
        return None
    if not offer or squeezed[0] not in "{[`f":
        return False
    before = next(one for one in _LONGEST_FIRST if squeezed.startswith(one))
    verdict = _is_opening(squeezed[len(before) :], offer, is_asked=is_asked)
    is_part = any(one.startswith(squeezed) for one in _BEFORES)
    return None if verdict is False and is_part else verdict


def _is_opening(squeezed: str, offer: OfferedTools, *, is_asked: bool) -> StepResult:
    if squeezed.startswith(_ANY_CALL) or (is_asked and squeezed.startswith(_NAMED_CALL)):
        return True
    for beginning in _NAMED_CALL:
        if squeezed.startswith(beginning):
            return offer.begins_with_name(squeezed[len(beginning) :])
    if any(one.startswith(squeezed) for one in (*_ANY_CALL, *_NAMED_CALL)):
        return None
    return offer.begins_with_name(squeezed[1:]) if squeezed[0] == "[" else False


def read(text: str) -> Found:
    """Read such a reply.

    Raises:
        Unreadable: it is anything else.
    """
    text = text.strip()
    start = _START.match(text)
    inner = text[start.end() :] if start else text
    if not _PYTHON.match(inner):
        return whole_in_json(inner)
    found = pythonic(inner)
    if found.rest.replace("```", "").strip():
        raise Unreadable("there is more than calls")
    return Found(found.calls)
