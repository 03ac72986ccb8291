"""Elicitation requests of servers at the terminal, as forms or URLs; without a terminal they are declined."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dial_client.cli.approval_prompt import SEPARATOR, measure_terminal_width
from dial_client.cli.approval_rows import BAR, add_bars
from dial_client.cli.error_stream import warn_once
from dial_client.cli.options import Options
from dial_client.cli.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.hooks.approval_request import quote_name
from dial_client.hooks.elicitation_form import Form, FormField
from dial_client.hooks.server_callbacks import Callbacks, Elicit, Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.sinks.turn_display import TurnSink

# The maximum characters of a server's message that are shown.
MAX_MESSAGE = 4_000
MAX_LABEL = 300
# The maximum characters of a name: a longer name could wrap, and imitate a line of the program.
MAX_TITLE = 60
_BOOLEANS = {"y": True, "yes": True, "true": True, "1": True, "n": False, "no": False, "false": False, "0": False}


def build_callbacks(options: Options, sink: TurnSink) -> Callbacks:
    """Return the callbacks of ``dial-chat`` for elicitation, sampling and log messages of servers."""
    return Callbacks(
        elicit=build_elicitor(sink),
        sample="model" if options.sampling else None,
        on_log=sink.log if options.verbose else None,
    )


def build_elicitor(sink: TurnSink) -> Elicit:
    """Return the callback that asks the user at the terminal.

    Without a terminal, or while no tool of the server runs, it declines the request and prints a warning.
    """
    if not can_ask_user():
        return _decline

    async def ask(question: Elicitation) -> ElicitationAnswer:
        if not question.tools:
            problem = "asked a question while none of its tools was called"
            warn_once(f"{question.server} {problem}: {question.message}; declined")
            return ElicitationAnswer(ElicitationAction.DECLINE)
        async with sink.question():
            try:
                return await (_open(question) if question.url else _fill_in(question))
            except Unanswered:
                return ElicitationAnswer(ElicitationAction.CANCEL)

    return ask


async def _decline(question: Elicitation) -> ElicitationAnswer:
    request = f"to open {question.url}" if question.url else to_one_line(question.message, 200)
    warn_once(f"{question.server} asks: {request}; declined, because there is no terminal to ask at")
    return ElicitationAnswer(ElicitationAction.DECLINE)


async def _open(question: Elicitation) -> ElicitationAnswer:
    _introduce(question, "wants you to open an address")
    _print_foreign([question.url or ""])
    _print_line("open it yourself if you trust it")
    answer = await _choose(f"Agree to {_format_asker(question)}?", ["yes", "no"])
    return ElicitationAnswer(ElicitationAction.ACCEPT if answer == "yes" else ElicitationAction.DECLINE)


async def _choose(question: str, words: Sequence[str]) -> str:
    """Ask for one of these words, or for its first letter, and return the word; Enter alone is "no"."""
    answers = {typed: word for word in words for typed in (word[0], word)} | {"": "no"}
    keys = SEPARATOR.join(f"{word[0]} {word}" for word in words)
    while (typed := (await ask_for_line(f"{question} {keys}: ")).lower()) not in answers:
        _print_line(f"one of: {', '.join(filter(None, answers))}; Enter alone is no")
    return answers[typed]


async def _fill_in(question: Elicitation) -> ElicitationAnswer:
    """Ask for the value of each field, and repeat this while the user wants to change values."""
    _introduce(question, "asks")
    form = Form(question.schema or {})
    if form.fields:
        _print_line("Enter alone: the value in [brackets], or none; Ctrl-D: cancel")
    content: dict[str, Any] = dict(form.defaults)
    while True:
        for field in form.fields:
            await _ask_for(field, form, content)
        if form.fields:
            _print_line(f"{quote_name(question.server)} would get:")
            _print_foreign(_format_content(form, content))
        else:
            _print_line("there is nothing to fill in")
        words = ["yes", "no", "again"] if form.fields else ["yes", "no"]
        answer = await _choose(f"Send it to {_format_asker(question)}?", words)
        if answer == "yes":
            # A field that the user left empty must stay empty, even if the form has a default for it.
            left_out = {field.name: None for field in form.fields if field.name not in content}
            return ElicitationAnswer(ElicitationAction.ACCEPT, content | left_out)
        if answer == "no":
            return ElicitationAnswer(ElicitationAction.DECLINE)


async def _ask_for(field: FormField, form: Form, content: dict[str, Any]) -> None:
    """Ask until the answer is valid; an empty answer keeps the current value."""
    if field.description:
        _print_foreign([to_one_line(field.description, MAX_LABEL)])
    if len(field.title) > MAX_TITLE:
        _print_foreign([to_one_line(field.title, MAX_LABEL)])
    _print_foreign(
        f"  {number}. {to_one_line(choice.title, MAX_LABEL)}" for number, choice in enumerate(field.choices, 1)
    )
    hidden = field.name in form.secrets
    while True:
        text = await ask_for_line(f"{BAR}{_format_label(field, content, hidden=hidden)}: ", hidden=hidden)
        if not text and (field.name in content or not field.is_required):
            return
        value = form.fill({field.name: _parse_value(field, text)}).get(field.name)
        problems = form.find_field_problems(field.name, value) if text else ["a value is required"]
        if not problems:
            content[field.name] = value
            return
        _print_line(f"  invalid: {to_one_line('; '.join(problems), MAX_LABEL)}")


def _format_label(field: FormField, content: Mapping[str, Any], *, hidden: bool) -> str:
    kinds = {"boolean": "yes or no", "integer": "a whole number", "number": "a number", "array": "separated by commas"}
    about = ["one of them" if field.choices and field.kind == "string" else kinds.get(field.kind, "")]
    about.append(to_one_line(str(field.schema.get("format") or ""), 20))
    if field.is_required:
        about.append("required")
    label = to_one_line(field.title, MAX_TITLE)
    if any(about):
        label += f" ({', '.join(filter(None, about))})"
    if field.name in content:
        label += f" [{to_one_line(_format_value(content[field.name], hidden=hidden), MAX_TITLE)}]"
    return label


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


def _format_content(form: Form, content: Mapping[str, Any]) -> list[str]:
    known = [(field, content[field.name]) for field in form.fields if field.name in content]
    lines = (f"{field.title} = {_format_value(value, hidden=field.name in form.secrets)}" for field, value in known)
    return [to_one_line(line, MAX_MESSAGE) for line in lines] or ["nothing"]


def _format_value(value: Any, *, hidden: bool) -> str:
    if hidden:
        return "•••"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _introduce(question: Elicitation, what: str) -> None:
    """Print which server asks, and its message. No line of the message can look like a line of the program."""
    tools = ", ".join(quote_name(tool, MAX_TITLE) for tool in question.tools[:3])
    _print_line(f"{quote_name(question.server)} {what}, while it runs {tools}:")
    _print_foreign(sanitize(question.message)[:MAX_MESSAGE].splitlines())
    if len(question.message) > MAX_MESSAGE:
        _print_line(f"  … {len(question.message) - MAX_MESSAGE:,} more characters are not shown")
    for warning in question.warnings:
        _print_line(f"  warning: {to_one_line(warning, MAX_LABEL)}")


def _format_asker(question: Elicitation) -> str:
    """Return the name of the server, and the first tool on whose behalf it asks."""
    return f"{quote_name(question.server, MAX_TITLE)} ({quote_name(question.tools[0], MAX_TITLE)})"


def _print_foreign(lines: Iterable[str]) -> None:
    for line in add_bars(lines, measure_terminal_width()):
        _print_line(line)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
