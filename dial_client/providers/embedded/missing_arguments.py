"""Finds the required arguments of a call that do not occur in the conversation.

The embedded model fills in every argument, with "New York" for a user who asks about the weather and names no city. A
value is accepted if it occurs in the conversation, if the argument's description names it, or if it may follow from the
user's words, such as a code, a time zone or a date. A name that shares no word with the conversation is not accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dial_client.messages.message import Message, Role, ToolCallRequest, ToolSpec
from dial_client.providers.embedded.argument_values import CURRENT_FOLDER, follows_as_time, is_folder, is_named_in
from dial_client.providers.embedded.provenance import has_strange_digits, is_made_up, is_no_address, occurs_in
from dial_client.providers.embedded.vocabulary import ASKING, find_tool_words, find_words, is_composed, is_english

_BEGINNING = 3
"""Letters at the beginning that identify a name in another spelling: "Rom" and "Rome"."""
_NAME = re.compile(r"[^\W\d_]+(?:[ '&.-]+[^\W\d_]+)*")
_CODE = re.compile(r"[A-Z]{2,5}")


def find_missing(
    call: ToolCallRequest, tool: ToolSpec, messages: Sequence[Message], conversation: str
) -> dict[str, Mapping[str, Any]]:
    """Return the required arguments that do not occur in the conversation, with their schemas.

    Args:
        call: The call from the model.
        tool: The called tool.
        messages: The conversation.
        conversation: The conversation's texts and results, with the instructions.
    """
    sources = "\n".join(message.text for message in messages if message.role in (Role.USER, Role.TOOL))
    has_source = bool(find_words(sources) - ASKING - find_tool_words(tool))
    missing = {}
    for name in tool.input_schema.get("required", ()):
        schema, value = tool.input_schema.get("properties", {}).get(name), call.arguments.get(name)
        if not isinstance(schema, Mapping) or "enum" in schema or "default" in schema or isinstance(value, bool):
            continue
        if is_no_address(name, value, schema):
            missing[name] = schema
            continue
        if is_named_in(value, schema) or (value == CURRENT_FOLDER and is_folder(name, schema)):
            continue
        if follows_as_time(value, conversation):
            continue
        is_argument = _is_word_of_tool(name, value, tool)
        if occurs_in(value, conversation) and not is_argument:
            continue
        is_invented = is_made_up(value, schema, conversation) or has_strange_digits(value, conversation)
        if not has_source or is_argument or is_invented or not _may_follow(name, value, tool, sources):
            missing[name] = schema
    return missing


def _is_word_of_tool(name: str, value: object, tool: ToolSpec) -> bool:
    """Return True if a value only repeats words of the tool: the room "room", the building "lift"."""
    found = (
        find_words(value)
        if isinstance(value, str) and value.replace(" ", "").isalpha() and not is_composed(name)
        else frozenset[str]()
    )
    return bool(found) and found <= find_tool_words(tool)


def _may_follow(name: str, value: object, tool: ToolSpec, sources: str) -> bool:
    """Return True if a value that does not occur in the conversation may follow from it."""
    is_name = isinstance(value, str) and _NAME.fullmatch(value) is not None and _CODE.fullmatch(value) is None
    if not is_name or is_composed(name) or not is_english(sources):
        return True
    beginnings = {word[:_BEGINNING] for word in find_words(sources) - find_tool_words(tool) - find_words(name)}
    return any(word[:_BEGINNING] in beginnings for word in find_words(str(value)))
