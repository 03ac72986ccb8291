"""Calls that a model wrote as text: their JSON, their names, and whether they may be taken for calls at all."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dial_client.messages import ToolCallRequest, ToolSpec

MAX_CALLS = 16
"""Calls taken from one reply."""
MAX_DEPTH = 100
"""Levels of nesting in what a call carries; nobody means more, and whoever reads it later could exhaust its stack."""
MAX_NAME_CHARS = 128
"""Characters of a name that nobody offers; those on offer have 64 at most."""
MAX_OPENING_CHARS = 512
"""Characters within which a reply that is one call as JSON must have named its tool."""

_ARGUMENTS = ("arguments", "parameters")
_CALL_KEYS = frozenset({"name", "id", "type", *_ARGUMENTS})
_FENCE = re.compile(r"```\w*")
_FENCES = ("", "```json", "```", "```xml<tool_call>", "```<tool_call>", "```json<tool_call>")
_NAME = '{"name":"'
_OPENINGS = tuple(
    fence + key for fence in _FENCES for key in (_NAME, '{"arguments":', '{"parameters":', '{"type":"function",')
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The JSON at the beginning of a text."""

    value: dict[str, Any] | list[Any] | None = None
    """An object or an array; None where there is neither."""
    rest: str = ""
    """The text behind it."""
    open_string: bool = False
    """There is no value, because the text ends inside one of its strings."""


def decode(text: str) -> Decoded:
    """Read the object or the array a text begins with, strictly; a fence around it does not matter."""
    text = unfenced(text)
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        return Decoded(open_string=error.msg.startswith("Unterminated string"))
    except (ValueError, RecursionError):
        return Decoded()
    return Decoded(value, text[end:]) if isinstance(value, dict | list) and _is_flat(value, MAX_DEPTH) else Decoded()


def _is_flat(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner)


def unfenced(text: str) -> str:
    """Give the text without the white space around it, and without the code fence, if it has one."""
    text = text.strip()
    fence = _FENCE.match(text)
    return text[fence.end() :].removesuffix("```").strip() if fence else text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


class Offer:
    """The tools on offer for one reply, and how what the model wrote becomes a call of one of them."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def offered(self, said: str) -> str | None:
        """Give the offered name the model means; None where no such tool is on offer."""
        said = said.strip()
        plain = said if said in self._tools else said.removeprefix("functions.")
        return plain if plain in self._tools else None

    def may_begin_call(self, text: str) -> bool | None:
        """Whether a reply that begins like this may be one call as JSON, bare or fenced; None where more must be seen.

        What is said of a text holds for every longer one, so it does not matter in which pieces the reply comes.
        """
        if not self._tools:
            return False
        verdict = self._opening("".join(text[:MAX_OPENING_CHARS].split()))
        return False if verdict is None and len(text) >= MAX_OPENING_CHARS else verdict

    def _opening(self, squeezed: str) -> bool | None:
        for opening in _OPENINGS:
            if opening.startswith(squeezed):
                return None
            if squeezed.startswith(opening):
                if not opening.endswith(_NAME):
                    return True
                name, quote, _ = squeezed[len(opening) :].partition('"')
                return self.offered(name) is not None if quote else None
        return False

    def request(self, name: str, arguments: Any) -> ToolCallRequest:
        """Make a call; arguments that are no JSON object are kept as `unreadable`, a name nobody offers as it is."""
        call_id, name = f"call_{uuid.uuid4().hex}", self.offered(name) or name.strip()[:MAX_NAME_CHARS]
        arguments = arguments.strip() if isinstance(arguments, str) else arguments
        if arguments in (None, "", "null"):
            return ToolCallRequest(call_id, name, {})
        value = decode(arguments).value if isinstance(arguments, str) else arguments
        if isinstance(value, Mapping):
            return ToolCallRequest(call_id, name, dict(value))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ToolCallRequest(call_id, name, {}, unreadable=text)

    def take(self, value: dict[str, Any] | list[Any]) -> list[ToolCallRequest]:
        """Read calls where the model was asked for them: whatever is wrong with one, the executor tells the model."""
        return [self._take(one) for one in (value[:MAX_CALLS] if isinstance(value, list) else [value])]

    def _take(self, value: Any) -> ToolCallRequest:
        if not isinstance(value, Mapping):
            return self.request("", value)
        name = value.get("name")
        return self.request(name if isinstance(name, str) else "", _arguments(value))

    def take_broken(self, text: str) -> ToolCallRequest:
        """Read what can be read of a call whose JSON is broken: its name, and its arguments as they stand there."""
        name = _behind(text, "name") or ""
        name = name[1:].partition('"')[0] if name.startswith('"') else _first_word(text)
        arguments = _behind(text, "arguments") or _behind(text, "parameters")
        if arguments is None:
            return self.request(name, text)
        decoded = decode(arguments)
        if isinstance(decoded.value, dict) and not decoded.rest.strip("} \t\r\n"):
            return self.request(name, decoded.value)
        if arguments.endswith("}") and arguments.count("}") > arguments.count("{"):
            arguments = arguments[:-1]
        return self.request(name, arguments)

    def rescue(self, value: dict[str, Any] | list[Any]) -> list[ToolCallRequest]:
        """Read calls where none were asked for: all of them must name an offered tool and fit it, or there are none."""
        values = value[:MAX_CALLS] if isinstance(value, list) else [value]
        calls = [self.request(one["name"], _arguments(one)) for one in values if _is_call(one)]
        return calls if len(calls) == len(values) and all(map(self._fits, calls)) else []

    def rescue_whole(self, text: str) -> list[ToolCallRequest]:
        """Read a reply that is nothing but one call as JSON: bare, in a fence, or in tags in a fence."""
        text = unfenced(text)
        decoded = decode(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        return self.rescue(decoded.value) if isinstance(decoded.value, dict) and not decoded.rest.strip() else []

    def _fits(self, call: ToolCallRequest) -> bool:
        tool = self._tools.get(call.name)
        if tool is None or call.unreadable is not None:
            return False
        # Asked for its definition, a model prints {"name", "parameters": the schema}: that is not a call.
        known = tool.input_schema.get("properties", {})
        is_schema = "properties" in call.arguments and "properties" not in known
        return not is_schema and all(name in call.arguments for name in tool.input_schema.get("required", ()))


def _is_call(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("name"), str)
        and any(key in value for key in _ARGUMENTS)
        and value.keys() <= _CALL_KEYS
    )


def _arguments(value: Mapping[str, Any]) -> Any:
    return next((value[key] for key in _ARGUMENTS if key in value), None)


def _behind(text: str, key: str) -> str | None:
    """Give the text behind ``"key":``."""
    _, found, rest = text.partition(f'"{key}"')
    rest = rest.lstrip()
    return rest[1:].strip() if found and rest.startswith(":") else None


def _first_word(text: str) -> str:
    return re.split(r"[\s{(<\[:,\"']", text.strip()[:80], maxsplit=1)[0][:64]
