"""The approval prompt: the lines that ask the user whether a tool may run.

Each line of text from a server or a model begins with a bar, and this module wraps it, not the terminal. So the text
cannot imitate the program's own lines.

"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from dial_client.cli.word_wrap import count_cells
from dial_client.client.sampling import SAMPLING
from dial_client.hooks.approval_request import describe_claims, describe_invisible, format_argument, quote_name
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.safe_text import escape_unseen
from dial_client.tools.approval import Approval, ApprovalContext, Decision
from dial_client.tools.file_changes import FileChange

# The maximum number of lines of one argument, or of a server's text, without "view all".
MAX_LINES = 12
# The maximum number of lines of a diff without "view all".
MAX_DIFF = 40
# The maximum number of lines of all arguments together, divided evenly among the arguments.
MAX_BLOCK = 120
MAX_ARGUMENTS = 100
# The maximum combining marks on one letter: terminals draw no more, so further marks are printed as escapes.
MAX_MARKS = 8
MAX_WHOLE_NAME = 2_000
BAR = "│ "
# The bars of added and removed lines of a diff; all other lines have `BAR`, whose second character is a space.
ADDED, REMOVED = "│+", "│-"
ANSWERS = {
    "y": "run this call",
    "n": "do not run it; a reason may follow",
    "s": "run it, and do not ask about the tool until the program ends",
    "a": "run it, and do not ask about the tool until it changes",
    "v": "view everything",
    "e": "edit the arguments",
    "q": "end the turn",
}
# The answers to a sampling request of a server. The request cannot be edited, and no permission for it is stored.
ANSWERS_FOR_SAMPLING = {
    "y": "allow this request",
    "n": "do not allow it; a reason may follow",
    "s": "allow it, and do not ask about the server until the program ends",
    "v": "view everything",
    "q": "end the turn",
}
ANSWERS_FOR_ALL = ANSWERS_FOR_SAMPLING | {
    "y": "run all these calls",
    "n": "run none of them; a reason may follow",
    "s": "run them, and do not ask about their tools until the program ends",
    "a": "run them, and do not ask about their tools until they change",
}
KEYS = "[y]es  [n]o, because…  [s]ession  [a]lways  [v]iew all  [e]dit arguments  [q]uit turn"
KEYS_FOR_SAMPLING = KEYS.replace("  [e]dit arguments", "").replace("  [a]lways", "")
KEYS_FOR_ALL = "[y]es to all  [n]o to all, because…  [s]ession  [a]lways  [v]iew all  [1]… one alone  [q]uit turn"

_NO = "the user said no"
_ALLOWED = {"y": Decision.ONCE, "s": Decision.SESSION, "a": Decision.ALWAYS}
_WORDS = frozenset(("yes", "session", "always", "view", "view all", "edit", "quit"))
_DENIED = re.compile(r"(?:no|n)(?![\w'])[\s,.:;-]*(?:because\b[\s,.:;…-]*)?(?P<reason>.*)", re.IGNORECASE | re.DOTALL)


def explain(answers: Mapping[str, str]) -> str:
    """Return a line that explains the keys of a question."""
    keys: dict[str, list[str]] = {}
    for key, meaning in answers.items():
        keys.setdefault(meaning, []).append(key)
    return "; ".join(f"{', '.join(same)}: {meaning}" for meaning, same in keys.items()) + '. Enter alone is "no".'


# An answer that is no decision: view everything, edit the arguments, end the turn; or an unknown answer.
PromptAction = Literal["view", "edit", "quit", "unknown"]
_ACTIONS: Mapping[str, PromptAction] = {"v": "view", "e": "edit", "q": "quit"}


def parse_answer(typed: str) -> Approval | PromptAction:
    """Return the decision for a typed answer. An empty answer denies the call, and so does "no" with a reason."""
    key = typed[0].lower() if typed.lower() in _WORDS else typed.lower()
    if key in _ALLOWED:
        return Approval(_ALLOWED[key])
    if action := _ACTIONS.get(key):
        return action
    if not key:
        return Approval(Decision.DENY, _NO)
    if denied := _DENIED.fullmatch(typed):
        return Approval(Decision.DENY, denied["reason"].strip().rstrip(".") or _NO)
    return "unknown"


def build_question(tool: ToolSpec, server: str, columns: int) -> tuple[list[str], str]:
    """Return the lines of the question before its last line, and the last line, after which the answer is typed."""
    named, asker = _fit_names(tool, server, columns)
    if tool.tool == SAMPLING:
        return _with_keys(f"Let {asker} use your model?", KEYS_FOR_SAMPLING, columns)
    return _with_keys(f"Run {named} of {asker}?", KEYS, columns)


def build_question_for_all(tools: Mapping[int, ToolSpec], columns: int) -> tuple[list[str], str]:
    """Return the question about several calls, as `build_question` does.

    Args:
        tools: The tool of each call, by the number of the call.
        columns: The width of the terminal.
    """
    names = [f"{at} {_fit_name(tool.tool, 30)} of {_fit_name(tool.server, 20)}" for at, tool in tools.items()]
    for limit in range(len(names), 0, -1):
        more = f", and {len(names) - limit} more" if len(names) > limit else ""
        last = f"Run all {len(names)}: {', '.join(names[:limit])}{more}?"
        if count_cells(last) < columns:
            break
    return _with_keys(last, KEYS_FOR_ALL, columns)


def remove_keys(last: str) -> str:
    """Return the last line of a question without the keys that answer it."""
    for keys in (KEYS, KEYS_FOR_SAMPLING, KEYS_FOR_ALL):
        last = last.removesuffix(f"{keys}: ")
    return last


def _with_keys(last: str, keys: str, columns: int) -> tuple[list[str], str]:
    if count_cells(last) + len(keys) + 4 < columns:
        return [], f"{last} {keys}: "
    lines = [""]
    for key in keys.split("  "):
        line = f"{lines[-1]}  {key}".lstrip()
        lines[-1:] = [line] if count_cells(line) < columns else [lines[-1], key]
    return lines, f"{last} "


def describe_request(
    call: ToolCallRequest,
    tool: ToolSpec,
    context: ApprovalContext,
    columns: int,
    *,
    whole: bool = False,
    changes: Sequence[FileChange] = (),
) -> Iterator[str]:
    """Yield the lines above the question: names, claims, the reason, arguments.

    Args:
        call: The call that the model requests.
        tool: The tool, as it was offered to the model.
        context: The circumstances of the call.
        columns: The width of the terminal.
        whole: Show everything, however long.
        changes: Diffs to show in place of the arguments they replace; with `whole`, before these arguments.
    """
    named, asker = _fit_names(tool, context.server, columns)
    limit = None if whole else MAX_LINES
    if context.change:
        yield f"{asker} has changed {named} since it was approved:"
        yield from add_bars(escape_unseen(context.change).splitlines(), columns, None)
    if tool.tool == SAMPLING:
        yield f"{asker} wants to use your model"
    else:
        yield f"{asker} wants to run {named}"
        for short, name in ((named, tool.tool), (asker, context.server)):
            if short != (whole_name := quote_name(name, MAX_WHOLE_NAME)):
                yield from add_bars([f"full name: {whole_name}"], columns, None)
        for claim in describe_claims(tool):
            yield from add_bars(claim.splitlines(), columns, limit)
    if context.why_asked:
        reason = f"reason for asking: {' '.join(escape_unseen(context.why_asked).split())}"
        yield from (f"  {piece}" for piece, _ in _split_line(reason, columns - 3))
    yield from _format_arguments(call, columns, whole=whole, changes=changes)
    yield from (f"({note})" for note in describe_invisible(call, tool))


def _format_arguments(
    call: ToolCallRequest, columns: int, *, whole: bool, changes: Sequence[FileChange]
) -> Iterator[str]:
    if not call.arguments:
        yield "with no arguments"
        return
    yield "with"
    items = list(call.arguments.items())
    each = None if whole else max(1, min(MAX_LINES, MAX_BLOCK // len(items)))
    diffs = {change.argument: change for change in changes}
    hidden = {name for change in changes for name in change.replaces} if not whole else set()
    for name, value in items if whole else items[:MAX_ARGUMENTS]:
        if name in diffs:
            yield from _diff(diffs[name], columns, None if whole else MAX_DIFF)
        if name not in hidden and (whole or name not in diffs):
            yield from add_bars(format_argument(str(name), value), columns, each)
    if not whole and len(items) > MAX_ARGUMENTS:
        yield f"… and {len(items) - MAX_ARGUMENTS:,} more arguments: [v]iew all"


def _diff(change: FileChange, columns: int, limit: int | None) -> Iterator[str]:
    yield from add_bars([f"{escape_unseen(change.argument)}: ({change.title})"], columns, None)
    yield from add_bars([line[1:] for line in change.lines], columns, limit, [line[0] for line in change.lines])
    if change.unchanged and limit is not None:
        yield f"  … {change.unchanged:,} unchanged {'line' if change.unchanged == 1 else 'lines'}: [v]iew all"


def _fit_names(tool: ToolSpec, server: str, columns: int) -> tuple[str, str]:
    """Return the names of the tool and of the server, shortened to fit into one line."""
    room = max(20, columns - 40)
    asker = _fit_name(server, room // 2)
    return _fit_name(tool.tool, max(10, room - len(asker))), asker


def _fit_name(name: str, limit: int) -> str:
    """Return a quoted name of at most `limit` columns, without its notes if they do not fit."""
    whole = quote_name(name)
    if count_cells(whole) <= limit:
        return whole
    kept = (quote_name(name, length, notes=False) for length in range(min(limit, len(name)), 0, -1))
    return next((written for written in kept if count_cells(written) <= limit), '"…"')


def measure_terminal_width() -> int:
    """Return the width of the terminal in columns."""
    return max(20, shutil.get_terminal_size().columns)


def add_bars(
    lines: Iterable[str], columns: int, limit: int | None, marks: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield lines of a server, a model or a file, each after a bar. If lines are left out, a last line counts them.

    Args:
        lines: The lines, without bars.
        columns: The width of the terminal.
        limit: The maximum number of rows to yield before the last line; None for all.
        marks: For a diff, the mark of each line, printed after the bar.
    """
    lines = list(lines)
    shown = 0
    for at, line in enumerate(lines):
        room = columns - len(BAR) - 1
        # Measure only as much of a very long line as can be shown: one letter with its marks per column.
        end = len(line) if limit is None else (limit - shown + 1) * max(room, 2) * (MAX_MARKS + 1)
        for piece, left in _split_line(line[:end], room):
            if shown == limit:
                rest = len(lines) - at - 1
                chars = len(piece) + left + len(line[end:]) + sum(map(len, lines[at + 1 :]))
                counted = f"{rest:,} more lines, {chars:,} characters" if rest else f"{chars:,} more characters"
                yield f"  … {counted}: [v]iew all"
                return
            yield f"{BAR}{piece}" if marks is None else f"{BAR[0]}{marks[at]}{piece}"
            shown += 1


def _escape_marks(line: str) -> str:
    """Return a line in which no letter carries more than `MAX_MARKS` combining marks; further marks are escaped."""
    if line.isascii():
        return line
    written, marks = [], 0
    for char in line:
        marks = 0 if count_cells(char) else marks + 1
        written.append(char if marks <= MAX_MARKS else f"\\u{{{ord(char):x}}}")
    return "".join(written)


def _split_line(line: str, columns: int) -> Iterator[tuple[str, int]]:
    """Yield a line in pieces no wider than `columns`, each with the number of characters after it."""
    line = _escape_marks(line.expandtabs(4))
    start = used = space = 0
    for at, char in enumerate(line):
        cells = count_cells(char)
        if used + cells > max(columns, 2):
            end = space if space > start and at - space < columns // 3 else at
            yield line[start:end], len(line) - end
            start, used = end, count_cells(line[end:at])
        if char == " ":
            space = at + 1
        used += cells
    yield line[start:], 0
