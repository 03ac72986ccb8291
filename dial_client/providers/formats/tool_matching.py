"""Matches calls with the tools on offer: calls in text, of which others stay text, and the names of native calls."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.providers.formats.call_readers import MAX_CALLS, JsonCall, decode
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.schema import tool_arguments
from dial_client.schema.argument_check import ArgumentCheck

# The most characters of an unknown tool's name. Names of offered tools have at most 64 characters.
MAX_NAME_CHARS = 128

_NAME = compile_lazily(r"[\w.-]*+")
# The namespaces of models' own syntaxes: OpenAI's and Kimi's, Gemini's, and those of chat templates.
_NAMESPACE = compile_lazily(
    r"(?:functions?|default_api|tools?|tool_code|multi_tool_use|api)(?:::|[.:/])", re.IGNORECASE
)
# Special tokens, and all that follows the first of them.
_TOKENS = compile_lazily(r"\s*<(?:[|\uff5c]|/?\w+>).*", re.DOTALL)
# Kimi numbers the calls of a reply behind their names.
_NUMBER = compile_lazily(r":\d{1,4}\Z")


class OfferedTools:
    """The tools on offer for one reply.

    Args:
        tools: The tools on offer; None if they are unknown, so that every name is accepted.
    """

    def __init__(self, tools: Sequence[ToolSpec] | None) -> None:
        self._tools = {tool.name: tool for tool in tools or ()}
        self._is_known = tools is not None
        self._checks: dict[str, ArgumentCheck] = {}

    def __bool__(self) -> bool:
        return bool(self._tools) or not self._is_known

    def find_name(self, written: str) -> str | None:
        """Return the name of the tool that the model named; None if no such tool is on offer."""
        written = written.strip()
        name = written if written in self._tools else written.removeprefix("functions.")
        return name if name in self._tools or (name and not self._is_known) else None

    def begins_with_name(self, text: str) -> bool | None:
        """Return True if a text begins with the name of a tool; None if more text is needed to decide."""
        if not self:
            return False
        found = _NAME.match(text)
        name = found.group() if found else ""
        if len(name) < len(text):
            return self.find_name(name) is not None
        return None if len(name) <= MAX_NAME_CHARS else False

    def to_request(self, name: str, arguments: Any) -> ToolCallRequest:
        """Return a call. Arguments that are not an object are stored in `unreadable`; an unknown name is kept."""
        value = _to_object(arguments)
        if value is not None:
            return ToolCallRequest(_create_id(), self._resolve_name(name), value)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return self._to_unreadable(name, text)

    def to_requests(self, value: dict[str, Any] | list[Any]) -> list[ToolCallRequest]:
        """Return the calls of a JSON value that the model was asked to write, even if they are invalid.

        The executor reports the errors to the model.
        """
        items = value[:MAX_CALLS] if isinstance(value, list) else [value]
        return [self._convert_item(item) for item in items]

    def to_broken_request(self, text: str) -> ToolCallRequest:
        """Return the call in an invalid JSON text, with its name and its arguments as the model wrote them."""
        name = _find_text_behind_key(text, "name") or ""
        name = name[1:].partition('"')[0] if name.startswith('"') else _find_first_word(text)
        arguments = _find_text_behind_key(text, "arguments") or _find_text_behind_key(text, "parameters")
        if arguments is None:
            return self._to_unreadable(name, text)
        decoded = decode(arguments)
        if isinstance(decoded.value, dict) and not decoded.rest.strip("} \t\r\n"):
            return self.to_request(name, decoded.value)
        if arguments.endswith("}") and arguments.count("}") > arguments.count("{"):
            arguments = arguments[:-1]
        return self.to_request(name, arguments)

    def match_calls(self, calls: Sequence[JsonCall]) -> list[ToolCallRequest]:
        """Return the requests for calls that the model was not asked to write as text.

        If any call does not name an offered tool or does not satisfy its schema, no calls are returned.
        """
        requests = [self._match(call) for call in calls[:MAX_CALLS]]
        matched = [request for request in requests if request is not None]
        return matched if len(matched) == len(requests) else []

    def accept_calls(self, calls: Sequence[JsonCall]) -> list[ToolCallRequest]:
        """Return the requests for calls that the model was asked to write in another form, even if they are invalid.

        No calls are returned if the arguments of any call are not an object, or if any call is a tool definition.
        """
        values = [_to_object(call.arguments) for call in calls[:MAX_CALLS]]
        if not all(value is not None and "properties" not in value for value in values):
            return []
        return [self.to_request(call.name, value) for call, value in zip(calls, values, strict=False)]

    def _resolve_name(self, name: str) -> str:
        return self.find_name(name) or name.strip()[:MAX_NAME_CHARS]

    def _to_unreadable(self, name: str, text: str) -> ToolCallRequest:
        return ToolCallRequest(_create_id(), self._resolve_name(name), {}, unreadable=text.strip())

    def _convert_item(self, item: Any) -> ToolCallRequest:
        if not isinstance(item, Mapping):
            return self.to_request("", item)
        name = item.get("name")
        arguments = next((item[key] for key in ("arguments", "parameters") if key in item), None)
        return self.to_request(name if isinstance(name, str) else "", arguments)

    def _match(self, call: JsonCall) -> ToolCallRequest | None:
        """Return the request if a call names a tool and satisfies its schema, perhaps after a correction of types."""
        name = self.find_name(call.name)
        value = _to_object(call.arguments)
        if name is None or value is None:
            return None
        is_bare_word = call.are_texts and call.arguments is None
        if is_bare_word and not self._is_known:
            return None
        tool = self._tools.get(name)
        if tool is None:
            return self.to_request(name, value)
        # Arguments that are a schema are no call: a model that describes a tool writes its definition.
        properties = tool.input_schema.get("properties") or {}
        is_typed = value.get("type") == "object" and "type" not in properties
        if is_typed or ("properties" in value and "properties" not in properties):
            return None
        if not self._is_valid(value, tool):
            schema = tool.original_schema or tool.input_schema
            value = tool_arguments.coerce(value, schema, are_texts=call.are_texts)
            if not self._is_valid(value, tool):
                return None
        return self.to_request(name, value)

    def _is_valid(self, arguments: Mapping[str, Any], tool: ToolSpec) -> bool:
        check = self._checks.get(tool.name)
        if check is None:
            check = self._checks[tool.name] = ArgumentCheck(tool.original_schema or tool.input_schema)
        if not check.is_possible:
            return all(name in arguments for name in tool.input_schema.get("required", ()))
        return check.is_valid(arguments)


def _create_id() -> str:
    return f"call_{secrets.token_hex(16)}"


def _to_object(arguments: Any) -> dict[str, Any] | None:
    """Return the arguments of a call as an object, empty if there are none. Text after the JSON is ignored."""
    if isinstance(arguments, str):
        text = arguments.strip()
        if text in ("", "null"):
            return {}
        if text[0] == '"':
            return tool_arguments.parse_arguments(text)
        decoded = decode(text)
        # Several objects: the executor chooses the one that fits.
        is_followed = decoded.rest.lstrip().startswith("{")
        return decoded.value if isinstance(decoded.value, dict) and not is_followed else None
    if arguments is None:
        return {}
    return dict(arguments) if isinstance(arguments, Mapping) else None


def _find_text_behind_key(text: str, key: str) -> str | None:
    """Return the text after ``"key":``; None if there is no such key."""
    _, found, rest = text.partition(f'"{key}"')
    rest = rest.lstrip()
    return rest[1:].strip() if found and rest.startswith(":") else None


def _find_first_word(text: str) -> str:
    return re.split(r"[\s{(<\[:,\"']", text.strip()[:80], maxsplit=1)[0][:64]


def repair_names(calls: Sequence[ToolCallRequest], offered: Collection[str]) -> list[ToolCallRequest]:
    """Return native calls with the names of offered tools, where exactly one fits; other names are not changed.

    Endpoints leave parts of a model's own syntax in names: ``functions.add``, ``default_api:add``, ``functions.add:0``
    and ``add<|channel|>commentary`` are ``add``. A call in text is matched by `OfferedTools` alone, and more strictly:
    it may be an example.
    """
    return [call if call.name in offered else replace(call, name=_fit_name(call.name, offered)) for call in calls]


def _fit_name(written: str, offered: Collection[str]) -> str:
    name = _TOKENS.sub("", written).strip(" \t\r\n\"'`")
    forms = {name, _NUMBER.sub("", name)}
    forms |= {_NAMESPACE.sub("", form, count=1) for form in forms if _NAMESPACE.match(form)}
    # A tool whose name has dots is offered without them.
    forms |= {re.sub(r"[^a-zA-Z0-9_-]", "_", form) for form in forms}
    fitting = forms.intersection(offered)
    return fitting.pop() if len(fitting) == 1 else written
