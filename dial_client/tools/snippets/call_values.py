"""The values that cross the border of the sandbox: arguments of calls, their results, and the value of a snippet."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages.message import (
    NO_OUTPUT,
    Content,
    Failure,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    ToolCallResult,
    ToolSpec,
    describe,
)
from dial_client.runtime.safe_text import sanitize
from dial_client.tools.function_context import FUNCTIONS
from dial_client.tools.result_content import join_parts
from dial_client.tools.snippets.sandbox import CallValue

# The deepest nesting of arguments and results, and the most characters of the JSON of all arguments of a call.
MAX_NESTING, MAX_ARGUMENTS = 50, 1_000_000
# Integers beyond these are no numbers for many servers, and take long to write.
_MAX_INTEGER = 2**64
# Characters of one result as the snippet gets it.
MAX_RESULT = 2_000_000
# The exceptions that a snippet can catch, by the kind of failure.
_EXCEPTIONS = {
    Failure.DENIED: "PermissionError",
    Failure.TIMEOUT: "TimeoutError",
    Failure.BAD_ARGUMENTS: "ValueError",
    Failure.UNKNOWN_TOOL: "NameError",
}


def to_json_value(value: Any, level: int = 0) -> Any:
    """Return an argument as a value of JSON types.

    Raises:
        ValueError: The value, or a part of it, has another type, is too large, or is nested too deeply.
    """
    if level > MAX_NESTING:
        raise ValueError("the arguments are nested too deeply")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            raise ValueError("an integer is too large")
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item, level + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_json_value(item, level + 1) for key, item in value.items()}
    raise ValueError(f"a value of the type {type(value).__name__} cannot be sent: use text, numbers, lists and dicts")


def to_arguments(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call. Raises as `to_json_value`."""
    arguments: dict[str, Any] = to_json_value(dict(keywords))
    if len(json.dumps(arguments)) > MAX_ARGUMENTS:
        raise ValueError(f"the arguments have more than {MAX_ARGUMENTS:,} characters")
    return arguments


@dataclass(eq=False)
class Attachments:
    """The images and documents of results, which a snippet has as references."""

    before: int = 0
    """The number of images and documents whose references the snippet may have from earlier."""
    parts: dict[str, Part] = field(default_factory=dict)
    """The parts by their references: ``[image 1: image/png, about 12 kB]``."""

    @property
    def count(self) -> int:
        """The number of all images and documents."""
        return self.before + len(self.parts)

    def add(self, part: ImagePart | FilePart) -> str:
        """Return a reference to a part."""
        kind = "image" if isinstance(part, ImagePart) else "file"
        reference = f"[{kind} {self.count + 1}: {describe(part)}]"
        self.parts[reference] = part
        return reference

    def find(self, text: str) -> tuple[Part, ...]:
        """Return the parts whose references are in a text."""
        return tuple(part for reference, part in self.parts.items() if reference in text)


def to_call_value(result: ToolCallResult, tool: ToolSpec, attachments: Attachments, *, has_value: bool) -> CallValue:
    """Return the result of a call for the snippet.

    Args:
        result: The result.
        tool: The tool.
        attachments: Receives images and documents.
        has_value: Whether the value of the result is what a middleware has let through. If not, only its text is used.
    """
    text = _to_text(result.content, attachments)
    if not result.success:
        exception = _EXCEPTIONS.get(result.failure, "RuntimeError") if result.failure else "RuntimeError"
        return CallValue(exception=exception, message=f"{tool.name}: {text}"[:MAX_RESULT])
    if not tool.output_schema and tool.server != FUNCTIONS:
        return CallValue("" if text == NO_OUTPUT else text)
    value = result.value
    if not has_value or (value is None and tool.output_schema):
        try:
            return CallValue(to_plain(json.loads(text)))
        except (ValueError, RecursionError):
            return CallValue(text)
    parts = () if isinstance(result.content, str) else result.content
    if any(isinstance(part, ImagePart | FilePart) for part in parts):
        return CallValue(text)
    return CallValue(to_plain(value))


def _to_text(content: Content, attachments: Attachments) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else attachments.add(part) for part in content)


def to_plain(value: Any) -> Any:
    """Return any value of the host as one of JSON types; other objects become texts."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="constants")


def build_content(printed: str, value: Any, attachments: Attachments) -> Content:
    """Return what the model reads of a snippet that has ended: what it has printed, then its value.

    Images and documents follow if their references are in the text.
    """
    shown = "" if value is None else value if isinstance(value, str) else _write_value(value)
    text = sanitize("\n".join(filter(None, (printed.rstrip("\n"), shown)))) or NO_OUTPUT
    return join_parts([TextPart(text), *attachments.find(text)])


def _write_value(value: Any) -> str:
    """Return a value of the sandbox as JSON, as far as it is one."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_describe_value)
    except (TypeError, ValueError, RecursionError):
        return _describe_value(value)


def _describe_value(value: Any) -> str:
    try:
        return str(value)
    except (ValueError, RecursionError) as error:  # an integer with more digits than Python writes
        return f"[a value of the type {type(value).__name__}: {type(error).__name__}]"
