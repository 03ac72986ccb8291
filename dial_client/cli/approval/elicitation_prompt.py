"""Elicitation requests of servers at the terminal, as forms or URLs; without a terminal they are declined.

On the screen a request is a box (`elicitation_box`); without a live area it is asked line by line here.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from dial_client.cli.approval.approval_prompt import SEPARATOR, measure_terminal_width
from dial_client.cli.approval.approval_rows import BAR, add_bars
from dial_client.cli.approval.elicitation_box import (
    MAX_LABEL,
    MAX_MESSAGE,
    MAX_TITLE,
    ask_in_box,
    build_acceptance,
    describe_kind,
    format_field_value,
    list_choices,
    list_content,
    take_value,
)
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import warn_once
from dial_client.cli.streams.tty import Unanswered, can_ask_user
from dial_client.cli.terminal.command_screen import CommandScreen, PlainScreen
from dial_client.hooks.approval_request import quote_name
from dial_client.hooks.elicitation_form import Form, FormField
from dial_client.hooks.server_callbacks import Callbacks, Elicit, Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.sinks.turn_display import TurnSink

# Asks for a line, as `PlainScreen.ask` does.
_Ask = Callable[..., Awaitable[str]]


def build_callbacks(options: Options, sink: TurnSink, screen: CommandScreen) -> Callbacks:
    """Return the callbacks of ``dial-chat`` for elicitation, sampling and log messages of servers."""
    return Callbacks(
        elicit=build_elicitor(sink, screen),
        sample="model" if options.sampling else None,
        on_log=sink.log if options.verbose else None,
    )


def build_elicitor(sink: TurnSink, screen: CommandScreen) -> Elicit:
    """Return the callback that asks the user at the terminal.

    Without a terminal, or while no tool of the server runs, it declines the request and prints a warning.
    """
    if not can_ask_user():
        return _decline

    async def ask(request: Elicitation) -> ElicitationAnswer:
        if not request.tools:
            problem = "asked a question while none of its tools was called"
            warn_once(f"{request.server} {problem}: {request.message}; declined")
            return ElicitationAnswer(ElicitationAction.DECLINE)
        async with sink.question(server=request.server):
            if not isinstance(screen, PlainScreen):
                answer, remaining_line = await ask_in_box(request, screen)
                sink.note_decision(remaining_line)
                return answer
            try:
                return await (_open if request.url else _fill_in)(request, screen.ask)
            except Unanswered:
                return ElicitationAnswer(ElicitationAction.CANCEL)

    return ask


async def _decline(question: Elicitation) -> ElicitationAnswer:
    request = f"to open {question.url}" if question.url else to_one_line(question.message, 200)
    warn_once(f"{question.server} asks: {request}; declined, because there is no terminal to ask at")
    return ElicitationAnswer(ElicitationAction.DECLINE)


async def _open(request: Elicitation, ask: _Ask) -> ElicitationAnswer:
    _introduce(request, "wants you to open an address")
    _print_foreign([request.url or ""])
    _print_line("open it yourself if you trust it")
    answer = await _choose(f"Agree to {_format_asker(request)}?", ["yes", "no"], ask)
    return ElicitationAnswer(ElicitationAction.ACCEPT if answer == "yes" else ElicitationAction.DECLINE)


async def _choose(question: str, words: Sequence[str], ask: _Ask) -> str:
    """Ask for one of these words, or for its first letter, and return the word; Enter alone is "no"."""
    answers = {typed: word for word in words for typed in (word[0], word)} | {"": "no"}
    keys = SEPARATOR.join(f"{word[0]} {word}" for word in words)
    while (typed := (await ask(f"{question} {keys}: ")).lower()) not in answers:
        _print_line(f"one of: {', '.join(filter(None, answers))}; Enter alone is no")
    return answers[typed]


async def _fill_in(request: Elicitation, ask: _Ask) -> ElicitationAnswer:
    """Ask for the value of each field, and repeat this while the user wants to change values."""
    _introduce(request, "asks")
    form = Form(request.schema or {})
    if form.fields:
        _print_line("Enter alone: the value in [brackets], or none; Ctrl-D: cancel")
    content: dict[str, Any] = dict(form.defaults)
    while True:
        for field in form.fields:
            await _ask_for(field, form, content, ask)
        if form.fields:
            _print_line(f"{quote_name(request.server)} would get:")
            _print_foreign(list_content(form, content))
        else:
            _print_line("there is nothing to fill in")
        words = ["yes", "no", "again"] if form.fields else ["yes", "no"]
        answer = await _choose(f"Send it to {_format_asker(request)}?", words, ask)
        if answer == "yes":
            return build_acceptance(form, content)
        if answer == "no":
            return ElicitationAnswer(ElicitationAction.DECLINE)


async def _ask_for(field: FormField, form: Form, content: dict[str, Any], ask: _Ask) -> None:
    """Ask until the answer is valid; an empty answer keeps the current value."""
    if field.description:
        _print_foreign([to_one_line(field.description, MAX_LABEL)])
    if len(field.title) > MAX_TITLE:
        _print_foreign([to_one_line(field.title, MAX_LABEL)])
    _print_foreign(f"  {line}" for line in list_choices(field))
    question = f"{BAR}{_format_label(field, form, content)}: "
    while problem := take_value(field, form, content, await ask(question, hidden=field.name in form.secrets)):
        _print_line(f"  invalid: {problem}")


def _format_label(field: FormField, form: Form, content: Mapping[str, Any]) -> str:
    kind = describe_kind(field)
    label = f"{to_one_line(field.title, MAX_TITLE)}{f' ({kind})' if kind else ''}"
    if field.name in content:
        label += f" [{to_one_line(format_field_value(field, form, content), MAX_TITLE)}]"
    return label


def _introduce(request: Elicitation, what: str) -> None:
    """Print which server asks, and its message. No line of the message can look like a line of the program."""
    tools = ", ".join(quote_name(tool, MAX_TITLE) for tool in request.tools[:3])
    _print_line(f"{quote_name(request.server)} {what}, while it runs {tools}:")
    _print_foreign(sanitize(request.message)[:MAX_MESSAGE].splitlines())
    if len(request.message) > MAX_MESSAGE:
        _print_line(f"  … {len(request.message) - MAX_MESSAGE:,} more characters are not shown")
    for warning in request.warnings:
        _print_line(f"  warning: {to_one_line(warning, MAX_LABEL)}")


def _format_asker(request: Elicitation) -> str:
    """Return the name of the server, and the first tool on whose behalf it asks."""
    return f"{quote_name(request.server, MAX_TITLE)} ({quote_name(request.tools[0], MAX_TITLE)})"


def _print_foreign(lines: Iterable[str]) -> None:
    for line in add_bars(lines, measure_terminal_width()):
        _print_line(line)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
