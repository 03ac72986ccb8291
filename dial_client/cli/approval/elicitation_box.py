"""Elicitation requests of servers on the screen: a box in the live area, like that of an approval.

The first column of the box has only words of the program: texts of the server are indented.
The functions for the values of a form serve `elicitation_prompt`, too, which asks line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.cli.approval.approval_prompt import ESCAPE, AnswerKey
from dial_client.cli.approval.approval_rows import Row, RowKind, UnwrappedLine, escape_marks, fit_name, fold
from dial_client.cli.approval.box_frame import BoxFrame
from dial_client.cli.streams.tty import Escaped, Unanswered
from dial_client.cli.streams.word_wrap import count_cells, fit
from dial_client.cli.terminal.attention import QUESTION
from dial_client.cli.terminal.command_screen import CommandScreen
from dial_client.hooks.elicitation_form import Form, FormField
from dial_client.hooks.server_callbacks import Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.runtime.safe_text import escape_unseen, sanitize, to_one_line

# The maximum columns of the titles of fields, beside which their values stand.
_MAX_LABEL_COLUMNS = 40
# The columns that are left for the values, unless the titles would have less than a third of the width.
_VALUE_COLUMNS = 28
# The maximum characters of the values in the line that remains.
_MAX_SENT = 100
_MARK = "→ "
_INDENT = " " * len(_MARK)

_WHILE_TYPING = (
    AnswerKey("Enter", "next (empty: unchanged)", ""),
    AnswerKey("Esc", "decline", ""),
    AnswerKey("Ctrl-D", "cancel", ""),
)
_SEND, _DECLINE = AnswerKey("y", "send", "send it"), AnswerKey("n", "decline", "send nothing")
_AGAIN = AnswerKey("a", "change", "fill in the form again")
_AGREE, _REFUSE = AnswerKey("y", "agree", "agree to open it yourself"), AnswerKey("n", "decline", "do not open it")
_CANCEL = AnswerKey("Ctrl-D", "cancel", "")


@dataclass
class ElicitationBox:
    """The box of one request: the server's message, and the form or the URL.

    Args:
        request: The request.
        form: The form; None for a URL.
        frame: The frame.
        content: The values of the form so far.
    """

    request: Elicitation
    form: Form | None
    frame: BoxFrame
    content: dict[str, Any] = field(default_factory=dict)
    asked: FormField | None = None
    """The field whose value is being typed; None for the question at the end."""
    problem: str = ""
    """Why the text that was typed last is no value of that field."""
    # The field that was brought into sight last.
    _followed: FormField | None = None

    @property
    def keys(self) -> tuple[AnswerKey, ...]:
        """The keys that answer now."""
        if self.form is None:
            return (_AGREE, _REFUSE, _CANCEL)
        if self.asked is not None:
            return _WHILE_TYPING
        return (_SEND, _DECLINE, *((_AGAIN,) if self.form.fields else ()), _CANCEL)

    def render(self, columns: int, height: int) -> list[str]:
        """Return the rows of the box in colours: a `Panel`."""
        tool = fit_name(self.request.tools[0], max(10, columns // 3))
        if self.asked is not self._followed:
            self._followed = self.asked
            self.frame.follow()
        return self.frame.render(columns, height, self._format_title, f"while it runs {tool}", self.keys, self._build)

    def _format_title(self, columns: int) -> str:
        wording = " asks you" if self.form is not None else " wants you to open an address"
        return fit_name(self.request.server, max(10, columns - len(wording))) + wording

    def _build(self, columns: int, _: int) -> list[Row]:
        rows = []
        for warning in self.request.warnings:
            rows += fold([UnwrappedLine(to_one_line(warning, MAX_LABEL), "warning", "! ", "    ")], columns, None)
        message = sanitize(self.request.message)
        left = len(message) - MAX_MESSAGE
        lines = [UnwrappedLine(line, first=_INDENT, further=_INDENT) for line in message[:MAX_MESSAGE].splitlines()]
        rows += fold(lines, columns, None)
        if left > 0:
            rows.append(Row(f"… {left:,} more characters are not shown", "note"))
        rows.append(Row(""))
        if self.form is None:
            rows += fold([UnwrappedLine(self.request.url or "", "text", _INDENT, _INDENT)], columns, None)
            return [*rows, Row(""), Row("open it yourself, if you trust it", "note")]
        widest = min(_MAX_LABEL_COLUMNS, max(columns // 3, columns - _VALUE_COLUMNS))
        titles = {each.name: escape_marks(fit(to_one_line(each.title, MAX_TITLE), widest)) for each in self.form.fields}
        width = max(map(count_cells, titles.values()), default=0)
        for each in self.form.fields:
            rows += self._describe(each, titles[each.name], width, columns)
        return rows if self.form.fields else [*rows, Row("there is nothing to fill in", "note")]

    def _describe(self, each: FormField, title: str, width: int, columns: int) -> Iterator[Row]:
        """Yield the rows of a field: its title and value; while it is asked for, also what may be typed."""
        assert self.form is not None
        is_asked = each is self.asked
        label = f"{_MARK if is_asked else _INDENT}{title}{' ' * (width - count_cells(title) + 2)}"
        has_value = each.name in self.content
        nothing = describe_kind(each) if self.asked is not None else "left empty"
        value = format_field_value(each, self.form, self.content) if has_value else nothing
        indentation = " " * count_cells(label)
        kind: RowKind = "note" if not has_value else "call" if is_asked else "text"
        [first, *further] = fold([UnwrappedLine(value, further=indentation, label=label)], columns, None)
        yield Row(first.text, kind, first.label, is_current=is_asked)
        yield from (Row(row.text, kind) for row in further)
        if not is_asked:
            return
        about = [each.description] if each.description else []
        if to_one_line(each.title, MAX_TITLE) != title:
            about.insert(0, each.title)
        notes = [to_one_line(escape_unseen(text), MAX_LABEL) for text in about] + list_choices(each)
        if has_value and (what := describe_kind(each)):
            notes.append(what)
        yield from fold([UnwrappedLine(note, "text", "    ", "      ") for note in notes], columns, None)
        if self.problem:
            yield from fold([UnwrappedLine(self.problem, "warning", "! ", "    ")], columns, None)


async def ask_in_box(request: Elicitation, screen: CommandScreen) -> tuple[ElicitationAnswer, str]:
    """Ask the user in the live area; return the answer, and the line that remains of the question."""
    form = None if request.url is not None else Form(request.schema or {})
    box = ElicitationBox(request, form, BoxFrame(screen.theme), dict(form.defaults) if form is not None else {})
    server = fit_name(request.server, MAX_TITLE)
    with screen.show_panel(box.render, QUESTION):
        try:
            is_accepted = await _ask(box, screen)
        except Escaped:
            is_accepted = False
        except Unanswered:
            return ElicitationAnswer(ElicitationAction.CANCEL), f"cancelled: the question of {server}"
    if not is_accepted:
        return ElicitationAnswer(ElicitationAction.DECLINE), f"declined: the question of {server}"
    if form is None:
        return ElicitationAnswer(ElicitationAction.ACCEPT), f"agreed for {server}; open it yourself: {request.url}"
    sent = to_one_line(", ".join(list_content(form, box.content)), _MAX_SENT)
    return build_acceptance(form, box.content), f"sent to {server}: {sent}"


async def _ask(box: ElicitationBox, screen: CommandScreen) -> bool:
    """Ask for each value and for the decision, again while the user wants to change values; return whether to send."""
    while True:
        for each in () if box.form is None else box.form.fields:
            box.asked = each
            await _ask_for_value(each, box, screen)
        box.asked = None
        keys = {key.letter: key.meaning for key in box.keys if len(key.letter) == 1} | {ESCAPE: "decline"}
        key = await screen.ask_key([], "", keys, on_move=box.frame.move)
        if key != _AGAIN.letter:
            return key == _SEND.letter


async def _ask_for_value(each: FormField, box: ElicitationBox, screen: CommandScreen) -> None:
    """Ask until the answer is valid."""
    assert box.form is not None
    current = ""
    if each.name in box.content:
        current = f" [{to_one_line(format_field_value(each, box.form, box.content), MAX_TITLE)}]"
    question = f"{to_one_line(each.title, MAX_TITLE)}{current}:"
    while True:
        text = await screen.ask_line(question, hidden=each.name in box.form.secrets, on_move=box.frame.move)
        box.problem = take_value(each, box.form, box.content, text)
        if not box.problem:
            return


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
