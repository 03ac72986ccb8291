"""Parses replies that contain only calls without markers: JSON, bare or in a code fence, or Python syntax."""

from __future__ import annotations

import re
from itertools import product

from dial_client.providers.formats.json_calls import FoundCalls, parse_only_json_calls
from dial_client.providers.formats.non_json_calls import parse_python
from dial_client.providers.formats.stream_buffer import Lookahead
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.schema.json_repair import Unreadable

_LANGUAGES = ("", "json", "python", "tool_call", "tool_code", "xml")
_WRAPPERS = ("", "functools", "<tool_call>", "<tool_calls>")
_PREFIXES = tuple(
    fence + wrapper for fence, wrapper in product(("", *(f"```{name}" for name in _LANGUAGES)), _WRAPPERS)
)
_LONGEST_FIRST = tuple(sorted(_PREFIXES, key=len, reverse=True))
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


def may_begin(text: str, offer: OfferedTools, *, is_requested: bool = False) -> Lookahead:
    """Return True if a reply that begins with this text may contain only calls; None if more text is needed to decide.

    True and False are final for every continuation of the text, so the result does not depend on how the reply was
    split.

    Args:
        text: The beginning of the reply.
        offer: The tools on offer.
        is_requested: True if the prompt asks for calls as text; then an object with any tool name may be a call.
    """
    squeezed = "".join(text.split())
    if not squeezed:
        return None
    if not offer or squeezed[0] not in "{[`f":
        return False
    before = next(prefix for prefix in _LONGEST_FIRST if squeezed.startswith(prefix))
    answer = _is_opening(squeezed[len(before) :], offer, is_requested=is_requested)
    is_part = any(prefix.startswith(squeezed) for prefix in _PREFIXES)
    return None if answer is False and is_part else answer


def _is_opening(squeezed: str, offer: OfferedTools, *, is_requested: bool) -> Lookahead:
    if squeezed.startswith(_ANY_CALL) or (is_requested and squeezed.startswith(_NAMED_CALL)):
        return True
    for opening in _NAMED_CALL:
        if squeezed.startswith(opening):
            return offer.begins_with_name(squeezed[len(opening) :])
    if any(opening.startswith(squeezed) for opening in (*_ANY_CALL, *_NAMED_CALL)):
        return None
    return offer.begins_with_name(squeezed[1:]) if squeezed[0] == "[" else False


def read(text: str) -> FoundCalls:
    """Return the calls of a reply that contains only calls.

    Raises:
        Unreadable: The reply contains anything else.
    """
    text = text.strip()
    start = _START.match(text)
    inner = text[start.end() :] if start else text
    if not _PYTHON.match(inner):
        return parse_only_json_calls(inner)
    found = parse_python(inner)
    if found.rest.replace("```", "").strip():
        raise Unreadable("there is more than calls")
    return FoundCalls(found.calls)
