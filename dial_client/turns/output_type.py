"""The types of typed answers: their JSON Schemas for models, and the parsing and validation of answers.

A type is anything that `pydantic.TypeAdapter` accepts (a model, a dataclass, a ``TypedDict``, ``list[…]``, a union, an
enum), or a JSON Schema as a mapping. Every API requires an object at the top level of a schema, so any other type is
wrapped as ``{"result": …}``, and answers are unwrapped again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.messages.model import OutputFormat
from dial_client.schema import provider_schema
from dial_client.schema.argument_check import MAX_PROBLEMS, ArgumentCheck, shorten_problem
from dial_client.schema.tool_arguments import coerce, parse_value

# The property of the wrapping object that contains the value of a type other than an object.
RESULT = "result"
NO_VALUE = "there is no whole JSON value in the answer"
_NAME = r"[^a-zA-Z0-9_-]+"
_FENCED = r"```[\w-]{0,32}\s([^`]*+(?>(?:`{1,2}(?!`)[^`]*+)*))```"
_COMBINATORS = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "enum", "const"})


class InvalidOutput(Exception):
    """An answer that does not have the required type. `errors` are sentences for the model and for users."""

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


@dataclass(frozen=True, eq=False, slots=True)
class TypedOutput:
    """A valid answer."""

    value: Any
    """The answer, converted to its type."""
    json: Any
    """The answer in JSON types, without the wrapping object."""


@dataclass(frozen=True, slots=True, eq=False)
class OutputType:
    """The type of an answer."""

    format: OutputFormat
    """The schema that is sent to models."""
    schema: Mapping[str, Any]
    """The original schema, with the wrapping object if there is one."""
    is_wrapped: bool
    """True if the value is wrapped in an object, as its property `RESULT`."""
    validate: Callable[[Any], Any]
    """Converts a value of JSON types to the type, or raises `InvalidOutput`."""
    validate_partial: Callable[[Any], Any] = field(repr=False)
    """Does the same as `validate` for a value that may be incomplete at its end."""

    def parse(self, text: str) -> TypedOutput:
        """Return the answer in a text: JSON, perhaps in a code fence or surrounded by other text.

        Raises:
            InvalidOutput: The text contains no value of the type.
        """
        value = _find_value(text, starts="{[" if self.is_wrapped else "{")
        if self.is_wrapped and not isinstance(value, str) and not _is_wrapper(value):
            # A text without quotation marks is a value of a string, or of an enum of strings.
            inner = {**self.schema["properties"][RESULT], "$defs": self.schema.get("$defs", {})}
            value = text.strip() if _find_top(inner).get("type") == "string" else value
        if value is None and not (self.is_wrapped and text.strip() == "null"):
            raise InvalidOutput(NO_VALUE)
        return self.check(value)

    def check(self, value: Any) -> TypedOutput:
        """Convert a value, with or without the wrapping object, to the type.

        Raises:
            InvalidOutput: The value does not have the type.
        """
        if not self.is_wrapped and not isinstance(value, dict):
            raise InvalidOutput(f"the answer is not an object: {shorten_problem(to_text(value))}")
        wrapped = {RESULT: value} if self.is_wrapped and not _is_wrapper(value) else value
        coerced = coerce(wrapped, self.schema)
        plain = coerced[RESULT] if self.is_wrapped else coerced
        return TypedOutput(self.validate(plain), plain)

    def parse_partial(self, text: str) -> Any:
        """Return the value in the beginning of an answer, as far as it is complete.

        Raises:
            InvalidOutput: The value does not have the type yet.
        """
        from pydantic_core import from_json

        start = text.find("{")
        try:
            value = from_json(text[max(start, 0) :], allow_partial="trailing-strings")
        except ValueError:
            raise InvalidOutput(NO_VALUE) from None
        if self.is_wrapped:
            if not _is_wrapper(value):
                raise InvalidOutput(NO_VALUE)
            value = value[RESULT]
        return self.validate_partial(value)


def build_output_type(output_type: Any) -> OutputType:
    """Return the type of an answer from the ``output_type`` option.

    Args:
        output_type: Anything that `pydantic.TypeAdapter` accepts, or a JSON Schema as a mapping.

    Raises:
        ConfigError: The mapping is not a valid JSON Schema.
        TypeError: The type cannot be parsed from JSON, or has no JSON Schema.
    """
    if isinstance(output_type, Mapping):
        try:
            return _build_for_schema(output_type)
        except RecursionError:
            raise ConfigError("output_type is nested too deeply") from None
    if output_type is None or isinstance(output_type, str | bytes | int | float | list | tuple | set):
        raise TypeError(f"output_type takes a type or a JSON Schema as a mapping, not {output_type!r}")
    try:
        return _build_cached(output_type)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _build_for_type(output_type)


def to_json_schema(output_type: Any) -> Mapping[str, Any]:
    """Return the JSON Schema of an output type, which is itself a valid output type.

    Args:
        output_type: Anything that `build_output_type` accepts.

    Raises:
        ConfigError: The mapping is not a valid JSON Schema.
        TypeError: The type cannot be parsed from JSON, or has no JSON Schema.
    """
    build_output_type(output_type)
    if isinstance(output_type, Mapping):
        return output_type
    from pydantic import TypeAdapter

    schema: dict[str, Any] = TypeAdapter(output_type).json_schema()
    return schema


def _build_for_schema(schema: Mapping[str, Any]) -> OutputType:
    whole, is_wrapped = _wrap(dict(schema))
    check = ArgumentCheck(whole, formats=True)
    if not check.is_possible:
        raise ConfigError("output_type is not a valid JSON Schema", hint="check its types and references")

    def validate(value: Any) -> Any:
        if problems := check.find_problems({RESULT: value} if is_wrapped else value):
            raise InvalidOutput(*problems)
        return value

    title = schema.get("title")
    return _build(title if isinstance(title, str) else "", whole, validate, validate, is_wrapped=is_wrapped)


def _build_for_type(output_type: Any) -> OutputType:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output_type)
        schema = adapter.json_schema()
    except (PydanticUserError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise TypeError(f"output_type cannot be {output_type!r}: {reason}") from error

    def validate(value: Any) -> Any:
        try:
            return adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            raise InvalidOutput(*_describe(error.errors(include_url=False, include_context=False))) from None
        except Exception as error:  # the caller's validators may raise any exception
            raise InvalidOutput(shorten_problem(f"{type(error).__name__}: {error}")) from error

    def validate_partial(value: Any) -> Any:
        try:
            return adapter.validate_python(value, experimental_allow_partial="trailing-strings")
        except Exception:  # noqa: BLE001 - as above
            raise InvalidOutput(NO_VALUE) from None

    whole, is_wrapped = _wrap(schema)
    name = output_type.__name__ if isinstance(output_type, type) else ""
    return _build(name, whole, validate, validate_partial, is_wrapped=is_wrapped)


_build_cached = lru_cache(maxsize=128)(_build_for_type)


def _build(
    name: str,
    schema: Mapping[str, Any],
    validate: Callable[[Any], Any],
    partial: Callable[[Any], Any],
    *,
    is_wrapped: bool,
) -> OutputType:
    try:
        adapted = provider_schema.adapt(schema)
    except provider_schema.Unsupported as error:
        raise TypeError(f"output_type cannot be {name or 'this schema'}: {error}") from None
    described = str(adapted.schema.get("description", ""))
    format_ = OutputFormat(
        name=re.sub(_NAME, "_", name).strip("_")[:64] or "output",
        schema=adapted.schema,
        description="\n\n".join(part for part in (described, *adapted.hints) if part),
    )
    return OutputType(format_, schema, is_wrapped, validate, partial)


def _wrap(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema of objects, and True if it wraps `schema`."""
    top = _find_top(schema)
    if (top.get("type") == "object" or "properties" in top) and not _COMBINATORS & top.keys():
        return schema, False
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    wrapper: dict[str, Any] = {"type": "object", "properties": {RESULT: _move_references(inner)}}
    wrapper |= {"required": [RESULT], "additionalProperties": False}
    return wrapper | ({"$defs": schema["$defs"]} if "$defs" in schema else {}), True


def _find_top(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema, or the definition that it refers to."""
    reference, definitions = schema.get("$ref"), schema.get("$defs")
    if isinstance(reference, str) and isinstance(definitions, Mapping) and reference.startswith("#/$defs/"):
        target = definitions.get(reference.removeprefix("#/$defs/"))
        return target if isinstance(target, Mapping) else schema
    return schema


def _move_references(schema: Any) -> Any:
    """Return a schema with its references to itself changed for its place within the wrapping object."""
    if isinstance(schema, list):
        return [_move_references(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: f"#/properties/{RESULT}{value[1:]}"
        if key == "$ref" and isinstance(value, str) and value.startswith("#") and not value.startswith("#/$defs/")
        else _move_references(value)
        for key, value in schema.items()
    }


def _is_wrapper(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {RESULT}


def _find_value(text: str, starts: str) -> Any:
    """Return the JSON value of an answer: the whole text, the last code fence, or the text between two brackets."""
    if (value := parse_value(text)) is not None:
        return value
    for fenced in reversed(re.findall(_FENCED, text)):
        if (value := parse_value(fenced)) is not None:
            return value
    for start in starts:
        begin, end = text.find(start), text.rfind({"{": "}", "[": "]"}[start])
        if 0 <= begin < end and (value := parse_value(text[begin : end + 1])) is not None:
            return value
    return None


def _describe(errors: list[Any]) -> list[str]:
    """Return pydantic's errors with their places, at most `MAX_PROBLEMS`."""
    problems = []
    for error in errors[:MAX_PROBLEMS]:
        place = ".".join(str(step) for step in error["loc"])
        given = "" if error["type"] == "missing" else f" (given: {to_text(error.get('input'))})"
        problems.append(shorten_problem(f"{place}: {error['msg']}{given}" if place else f"{error['msg']}{given}"))
    return problems


def to_text(value: Any) -> str:
    """Return a value of JSON types as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, default=str)
