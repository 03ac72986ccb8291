"""The question of an approval: the keys that answer it, typed answers, and the line that remains after the answer."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dial_client.cli.approval.approval_rows import ShownCall, fit_name
from dial_client.cli.streams.word_wrap import count_cells
from dial_client.runtime.safe_text import to_one_line
from dial_client.tools.approval import Approval, Decision

# The maximum characters of the user's reason that are printed.
MAX_REASON = 200
# The key Esc, as `Screen.ask_key` returns it.
ESCAPE = "\x1b"
SEPARATOR = " · "


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """A key that answers a question."""

    letter: str
    """The key; for the numbers of calls ``1-3``."""
    label: str
    """The one or two words beside the key."""
    meaning: str
    """The explanation after a wrong answer."""

    def __str__(self) -> str:
        """Return the key with its label."""
        return f"{self.letter} {self.label}"


DETAILS, QUIT = AnswerKey("d", "details", "show everything"), AnswerKey("q", "stop", "end the turn")
KEYS = (
    AnswerKey("y", "yes", "run this call"),
    AnswerKey("n", "no…", "do not run it; a reason may follow"),
    AnswerKey("s", "this session", "run it, and do not ask about the tool until the program ends"),
    AnswerKey("a", "always", "run it, and do not ask about the tool until it changes"),
    AnswerKey("e", "edit", "edit the arguments"),
    DETAILS,
    QUIT,
)
# The keys for a sampling request of a server. The request cannot be edited, and no permission for it is stored.
KEYS_FOR_SAMPLING = (
    AnswerKey("y", "yes", "allow this request"),
    AnswerKey("n", "no…", "do not allow it; a reason may follow"),
    AnswerKey("s", "this session", "allow it, and do not ask about the server until the program ends"),
    DETAILS,
    QUIT,
)
# The keys while a reason or an argument is typed.
KEYS_FOR_REASON = (AnswerKey("Enter", "say no", ""), AnswerKey("Esc", "no reason", ""))
KEYS_FOR_VALUE = (AnswerKey("Enter", "take the value", ""), AnswerKey("Esc", "leave it as it is", ""))
LESS = AnswerKey("d", "less", "fold what is long")
BACK = AnswerKey("b", "back", "show all calls again")


def build_keys_for_all(numbers: Sequence[int]) -> tuple[AnswerKey, ...]:
    """Return the keys for several calls; `numbers` are those of calls that have a key of their own."""
    is_row = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    span = f"{numbers[0]}-{numbers[-1]}" if is_row else "/".join(map(str, numbers))
    return (
        AnswerKey("y", "yes to all", "run all these calls"),
        AnswerKey("n", "no to all…", "run none of them; a reason may follow"),
        AnswerKey("s", "this session", "run them, and do not ask about their tools until the program ends"),
        AnswerKey("a", "always", "run them, and do not ask about their tools until they change"),
        *((AnswerKey(span, "one alone", "show that call alone"),) if numbers else ()),
        DETAILS,
        QUIT,
    )


_NO = "the user said no"
_ALLOWED = {"y": Decision.ONCE, "s": Decision.SESSION, "a": Decision.ALWAYS}
# The words that may be typed as a line in place of a key.
_WORDS = {"yes": "y", "session": "s", "this session": "s", "always": "a", "details": "d", "edit": "e", "back": "b"}
_WORDS |= {"quit": "q", "stop": "q"}
_DENIED = re.compile(r"(?:no|n)(?![\w'])[\s,.:;…-]*(?:because\b[\s,.:;…-]*)?(?P<reason>.*)", re.IGNORECASE | re.DOTALL)


def explain(keys: Sequence[AnswerKey]) -> str:
    """Return a line that explains the keys of a question."""
    return f'{"; ".join(f"{key.letter}: {key.meaning}" for key in keys)}. Enter alone is "no".'


# An answer that is no decision: show everything, edit the arguments, end the turn, go back; or an unknown answer.
PromptAction = Literal["details", "edit", "quit", "back", "unknown"]
_ACTIONS: Mapping[str, PromptAction] = {"d": "details", "e": "edit", "q": "quit", "b": "back"}


def parse_answer(typed: str) -> Approval | PromptAction:
    """Return the decision for a typed answer. An empty answer denies the call, and so does "no" with a reason."""
    key = _WORDS.get(typed.lower(), typed.lower())
    if key in _ALLOWED:
        return Approval(_ALLOWED[key])
    if action := _ACTIONS.get(key):
        return action
    if not key or key == ESCAPE:
        return Approval(Decision.DENY, _NO)
    if denied := _DENIED.fullmatch(typed):
        return Approval(Decision.DENY, denied["reason"].strip().rstrip(".") or _NO)
    return "unknown"


def build_question(calls: Sequence[ShownCall], keys: Sequence[AnswerKey], columns: int) -> tuple[list[str], str]:
    """Return the lines of a question before its last line, and the last line, after which the answer is typed."""
    if len(calls) > 1:
        question = f"Run all {len(calls)}?"
    else:
        [shown] = calls
        room = max(20, columns - len("Let  use your model? "))
        server = fit_name(shown.context.server, room // 2)
        tool = fit_name(shown.tool.tool, max(10, room - count_cells(server)))
        question = f"Let {server} use your model?" if shown.is_sampling else f"Run {tool} of {server}?"
    listed = SEPARATOR.join(map(str, keys))
    if count_cells(question) + count_cells(listed) + 4 < columns:
        return [], f"{question} {listed}: "
    lines = [""]
    for key in map(str, keys):
        line = f"{lines[-1]}{SEPARATOR}{key}" if lines[-1] else key
        lines[-1:] = [line] if count_cells(line) < columns else [lines[-1], key]
    return lines, f"{question} "


def describe_decision(calls: Sequence[ShownCall], answer: Approval, *, is_changed: bool = False) -> str:
    """Return the line that remains after an answer: what was decided about which calls.

    Args:
        calls: The calls that the answer is about.
        answer: The answer.
        is_changed: Whether the user has changed the arguments.
    """
    about = ", ".join(shown.format_title(80) for shown in calls)
    if not answer.allowed:
        reason = "" if answer.reason in ("", _NO) else f": {to_one_line(answer.reason, MAX_REASON)}"
        return f"not allowed: {about}{reason}"
    spans = {Decision.SESSION: " for this session", Decision.ALWAYS: " always"}
    span = spans.get(Decision(answer.decision), "")
    return f"allowed{span}{' with changed arguments' if is_changed else ''}: {about}"


def measure_terminal_width() -> int:
    """Return the width of the terminal in columns."""
    return max(20, shutil.get_terminal_size().columns)
