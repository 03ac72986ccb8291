"""The values of a server's form: what a typed text means, and how fields and values are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.hooks.elicitation_form import Form, FormField
from dial_client.hooks.server_callbacks import ElicitationAction, ElicitationAnswer
from dial_client.runtime.safe_text import to_one_line

# The maximum characters of a server's message, of a description, and of a line of values that are shown.
MAX_MESSAGE = 4_000
MAX_LABEL = 300
# The maximum characters of a name: a longer name could wrap, and imitate a line of the program.
MAX_TITLE = 60
_BOOLEANS = {"y": True, "yes": True, "true": True, "1": True, "n": False, "no": False, "false": False, "0": False}
_KINDS = {"boolean": "yes or no", "integer": "a whole number", "number": "a number", "array": "separated by commas"}


def describe_kind(field: FormField) -> str:
    """Return in a few words what may be typed for a field, and whether it is required; empty for any text."""
    words = [
        "one of them" if field.choices and field.kind == "string" else _KINDS.get(field.kind, ""),
        to_one_line(str(field.schema.get("format") or ""), 20),
        "required" if field.is_required else "",
    ]
    return ", ".join(filter(None, words))


def take_value(field: FormField, form: Form, content: dict[str, Any], text: str) -> str:
    """Store what was typed for a field, and return why it is invalid, or an empty text.

    An empty text keeps the current value.

    Args:
        field: The field.
        form: The form of the field.
        content: The values so far, by the names of their fields.
        text: The typed text.
    """
    if not text:
        return "" if field.name in content or not field.is_required else "a value is required"
    value = form.fill({field.name: _parse_value(field, text)}).get(field.name)
    if problems := form.find_field_problems(field.name, value):
        return to_one_line("; ".join(problems), MAX_LABEL)
    content[field.name] = value
    return ""


def _parse_value(field: FormField, text: str) -> Any:
    """Convert a typed text to the type of the field; a choice may be typed as its number."""
    if field.kind == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if not field.choices:
        return text if field.kind != "array" else [part.strip() for part in text.split(",")]
    known = {str(number): choice.value for number, choice in enumerate(field.choices, 1)}
    known |= {name.lower(): choice.value for choice in field.choices for name in (choice.title, choice.value)}
    if field.kind == "array":
        return [known.get(part.strip().lower(), part.strip()) for part in text.split(",")]
    return known.get(text.lower(), text)


def list_choices(field: FormField) -> list[str]:
    """Return the permitted values of a field with their numbers, from 1."""
    return [f"{number}. {to_one_line(choice.title, MAX_LABEL)}" for number, choice in enumerate(field.choices, 1)]


def list_content(form: Form, content: Mapping[str, Any]) -> list[str]:
    """Return a line ``title = value`` for each field that has a value."""
    known = [field for field in form.fields if field.name in content]
    return [
        to_one_line(f"{field.title} = {format_field_value(field, form, content)}", MAX_MESSAGE) for field in known
    ] or ["nothing"]


def format_field_value(field: FormField, form: Form, content: Mapping[str, Any]) -> str:
    """Return the value of a field that has one, in one line: a choice with its title; dots for a secret."""
    value = content[field.name]
    if field.name in form.secrets:
        return "•••"
    if isinstance(value, bool):
        return "yes" if value else "no"
    titles = {choice.value: choice.title for choice in field.choices}
    values = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    shown = (f"{titles[part]} ({part})" if titles.get(part, part) != part else part for part in values)
    return to_one_line(", ".join(shown), MAX_MESSAGE)


def build_acceptance(form: Form, content: Mapping[str, Any]) -> ElicitationAnswer:
    """Return the answer that sends values: a field left empty stays empty, even if the form has a default for it."""
    left_out = {field.name: None for field in form.fields if field.name not in content}
    return ElicitationAnswer(ElicitationAction.ACCEPT, {**content, **left_out})
