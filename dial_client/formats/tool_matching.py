"""What is on offer for one reply, and whether what a model wrote as text may be taken for a call of it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from dial_client.formats.json_calls import MAX_CALLS, JsonCall, decode
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.schema import tool_arguments as said_arguments
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.schema.tool_arguments import coerced

MAX_NAME_CHARS = 128
"""Characters of a name that nobody offers; those on offer have 64 at most."""

_NAMED = re.compile(r"[\w.-]*+")


class OfferedTools:
    """The tools on offer for one reply, and how what the model wrote becomes a call of one of them.

    Args:
        tools: None where it is not known what is on offer: then every name will do.
    """

    def __init__(self, tools: Sequence[ToolSpec] | None) -> None:
        self._tools = {tool.name: tool for tool in tools or ()}
        self._is_known = tools is not None
        self._checks: dict[str, ArgumentCheck] = {}

    def __bool__(self) -> bool:
        return bool(self._tools) or not self._is_known

    def offered(self, said: str) -> str | None:
        """Give the offered name the model means; None where no such tool is on offer."""
        said = said.strip()
        plain = said if said in self._tools else said.removeprefix("functions.")
        return plain if plain in self._tools or (plain and not self._is_known) else None

    def begins_with_name(self, text: str) -> bool | None:
        """Whether a text begins with an offered name; None where more of it must be seen."""
        if not self:
            return False
        found = _NAMED.match(text)
        name = found.group() if found else ""
        if len(name) < len(text):
            return self.offered(name) is not None
        return None if len(name) <= MAX_NAME_CHARS else False

    def request(self, name: str, arguments: Any) -> ToolCallRequest:
        """Make a call; arguments that are no object are kept as `unreadable`, a name nobody offers as it is."""
        value = _object(arguments)
        if value is not None:
            return ToolCallRequest(_new_id(), self._said(name), value)
        return self._unreadable(
            name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )

    def _unreadable(self, name: str, text: str) -> ToolCallRequest:
        return ToolCallRequest(_new_id(), self._said(name), {}, unreadable=text.strip())

    def _said(self, name: str) -> str:
        return self.offered(name) or name.strip()[:MAX_NAME_CHARS]

    def take(self, value: dict[str, Any] | list[Any]) -> list[ToolCallRequest]:
        """Read calls where the model was asked for them: whatever is wrong with one, the executor tells the model."""
        return [self._take(one) for one in (value[:MAX_CALLS] if isinstance(value, list) else [value])]

    def _take(self, value: Any) -> ToolCallRequest:
        if not isinstance(value, Mapping):
            return self.request("", value)
        name = value.get("name")
        arguments = next((value[key] for key in ("arguments", "parameters") if key in value), None)
        return self.request(name if isinstance(name, str) else "", arguments)

    def take_broken(self, text: str) -> ToolCallRequest:
        """Read what can be read of a call whose JSON is broken: its name, and its arguments as they stand there."""
        name = _behind(text, "name") or ""
        name = name[1:].partition('"')[0] if name.startswith('"') else _first_word(text)
        arguments = _behind(text, "arguments") or _behind(text, "parameters")
        if arguments is None:
            return self._unreadable(name, text)
        decoded = decode(arguments)
        if isinstance(decoded.value, dict) and not decoded.rest.strip("} \t\r\n"):
            return self.request(name, decoded.value)
        if arguments.endswith("}") and arguments.count("}") > arguments.count("{"):
            arguments = arguments[:-1]
        return self.request(name, arguments)

    def rescue(self, printed: Sequence[JsonCall]) -> list[ToolCallRequest]:
        """Read calls where none were asked for: all of them must name an offered tool and fit it, or there are none."""
        calls = []
        for one in printed[:MAX_CALLS]:
            call = self._rescued(one)
            if call is None:
                return []
            calls.append(call)
        return calls

    def meant(self, printed: Sequence[JsonCall]) -> list[ToolCallRequest]:
        """Read calls where they were asked for in another form: the executor tells the model what is wrong with them.

        There are none where one of them has no object for its arguments, or is the definition of a tool.
        """
        values = [_object(one.arguments) for one in printed[:MAX_CALLS]]
        if not all(value is not None and "properties" not in value for value in values):
            return []
        return [self.request(one.name, value) for one, value in zip(printed, values, strict=False)]

    def _rescued(self, printed: JsonCall) -> ToolCallRequest | None:
        name = self.offered(printed.name)
        value = _object(printed.arguments)
        if name is None or value is None:
            return None
        if printed.are_texts and printed.arguments is None and not self._is_known:
            return None  # a bare word between tags: only knowing the tools tells that it is one
        if tool := self._tools.get(name):
            if _is_definition(value, tool.input_schema):
                return None
            if not self._fits(value, tool):
                schema = tool.original_schema or tool.input_schema
                value = coerced(value, schema, are_texts=printed.are_texts)
                if not self._fits(value, tool):
                    return None
        return self.request(name, value)

    def _fits(self, arguments: Mapping[str, Any], tool: ToolSpec) -> bool:
        check = self._checks.get(tool.name)
        if check is None:
            check = self._checks[tool.name] = ArgumentCheck(tool.original_schema or tool.input_schema)
        if not check.is_possible:
            return all(name in arguments for name in tool.input_schema.get("required", ()))
        return check.is_valid(arguments)


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex}"


def _object(arguments: Any) -> dict[str, Any] | None:
    """Read a call's arguments; none at all are an empty object, and a text may go on behind its JSON."""
    if isinstance(arguments, str):
        text = arguments.strip()
        if text in ("", "null"):
            return {}
        if text[0] == '"':
            return said_arguments.read(text)
        value = decode(text).value
        return value if isinstance(value, dict) else None
    if arguments is None:
        return {}
    return dict(arguments) if isinstance(arguments, Mapping) else None


def _is_definition(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether this is a schema: asked what a tool is, a model prints ``{"name", "parameters": the schema}``."""
    known = schema.get("properties") or {}
    is_typed = arguments.get("type") == "object" and "type" not in known
    return is_typed or ("properties" in arguments and "properties" not in known)


def _behind(text: str, key: str) -> str | None:
    """Give the text behind ``"key":``."""
    _, found, rest = text.partition(f'"{key}"')
    rest = rest.lstrip()
    return rest[1:].strip() if found and rest.startswith(":") else None


def _first_word(text: str) -> str:
    return re.split(r"[\s{(<\[:,\"']", text.strip()[:80], maxsplit=1)[0][:64]
