"""Elicitation requests: their forms, their URLs, and warnings about both."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dial_client.runtime.json_fields import find_object, find_text
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import clean, sanitize
from dial_client.schema.argument_check import ArgumentCheck
from dial_client.schema.tool_arguments import coerce

_SECRET = compile_lazily(r"passw|secret|token|api.?key|credential|card.?number|\bpin\b|\bcvv\b|\bssn\b", re.IGNORECASE)


_SHOWN = ("title", "description", "enumNames")


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """One of the permitted values of a field."""

    value: str
    title: str


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form. The texts come from the server."""

    name: str
    title: str
    description: str
    kind: str
    """``string``, ``integer``, ``number``, ``boolean``, or ``array`` for any number of `choices`."""
    is_required: bool
    choices: tuple[FieldChoice, ...]
    """The permitted values; empty if any value is permitted."""
    schema: Mapping[str, Any]


class Form:
    """The form of an elicitation request (MCP 2025-11-25, "Elicitation", "Requested Schema").

    Args:
        schema: The requested schema; its values may be of any type, because the server is not trusted.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._check = ArgumentCheck(schema, formats=True)
        required = schema.get("required")
        must = required if isinstance(required, list) else []
        named = find_object(schema, "properties")
        self.fields = tuple(_read_field(str(name), about, name in must) for name, about in named.items())

    @property
    def defaults(self) -> dict[str, Any]:
        """The valid default values of the fields, by name (SEP-1034)."""
        defaults = {field.name: field.schema.get("default") for field in self.fields}
        found = {name: value for name, value in defaults.items() if value is not None}
        return {name: value for name, value in found.items() if not self.find_field_problems(name, value)}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of fields that seem to ask for a secret, which MCP forbids ("Elicitation", "Security")."""
        return tuple(field.name for field in self.fields if _SECRET.search(f"{field.name} {field.title}"))

    def fill(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content with defaults for missing fields, and with values converted to the expected types."""
        filled = {name: value for name, value in {**self.defaults, **content}.items() if value is not None}
        return coerce(filled, self._schema)

    def find_problems(self, content: Mapping[str, Any]) -> list[str]:
        """Return the problems of a completed form, each with the name of its field; empty if there is none."""
        known = {field.name for field in self.fields}
        unknown = [f"{name}: the form has no such field" for name in content if name not in known]
        return [*unknown[:5], *self._check.find_problems(content)]

    def find_field_problems(self, name: str, value: Any) -> list[str]:
        """Return the problems of one field's value; empty if there is none."""
        schema = next(field.schema for field in self.fields if field.name == name)
        return ArgumentCheck({"properties": {name: schema}}, formats=True).find_problems({name: value})


def clean_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a form's schema with clean titles and descriptions, and the number of invisible characters removed.

    Names and values are unchanged, because they are sent back to the server.
    """
    removed = 0

    def clean_value(value: Any, *, is_shown: bool) -> Any:
        nonlocal removed
        if isinstance(value, str) and is_shown:
            text = clean(value)
            removed += text.removed
            return text.text
        if isinstance(value, list):
            return [clean_value(part, is_shown=is_shown) for part in value]
        if isinstance(value, Mapping):
            return {key: clean_value(part, is_shown=key in _SHOWN) for key, part in value.items()}
        return value

    return clean_value(schema, is_shown=False), removed


def _read_field(name: str, about: Any, is_required: bool) -> FormField:  # noqa: FBT001 - called in one place
    schema = about if isinstance(about, Mapping) else {}
    kind, items = find_text(schema, "type") or "string", schema.get("items")
    choices = _read_choices(items if kind == "array" and isinstance(items, Mapping) else schema)
    title = find_text(schema, "title") or name
    return FormField(name, title, find_text(schema, "description"), kind, is_required, choices, schema)


def _read_choices(schema: Mapping[str, Any]) -> tuple[FieldChoice, ...]:
    """Return the values of an enumeration, in any of the four forms that the protocol's revisions define."""
    titled = next((schema[key] for key in ("oneOf", "anyOf") if isinstance(schema.get(key), list)), None)
    if titled is not None:
        options = [option for option in titled if isinstance(option, Mapping) and isinstance(option.get("const"), str)]
        return tuple(FieldChoice(option["const"], str(option.get("title") or option["const"])) for option in options)
    values, titles = schema.get("enum"), schema.get("enumNames")
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    if not isinstance(titles, list) or len(titles) != len(texts):
        titles = texts
    return tuple(FieldChoice(value, str(title)) for value, title in zip(texts, titles, strict=True))


def is_web_url(url: str) -> bool:
    """Return True for an http or https URL with a host and without invisible characters."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is not a number
    except ValueError:
        return False
    is_plain = sanitize(url) == url and not re.search(r"[\s\\]", url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain


def find_url_doubts(url: str) -> tuple[str, ...]:
    """Return warnings about parts of a URL that may hide its destination (MCP, "Elicitation", "Safe URL Handling")."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    doubts = [f"it leads to {host}"] if parts.username is not None or parts.password is not None else []
    if not host.isascii() or any(label.startswith("xn--") for label in host.split(".")):
        doubts.append("its host has letters outside of ASCII, which may only look like those of another host")
    if _is_this_machine_or_near(host):
        doubts.append("it leads to this machine, or to its local network")
    elif parts.scheme == "http":
        doubts.append("it is not encrypted")
    return tuple(doubts)


def _is_this_machine_or_near(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
