"""Makes text of models and servers safe: removes escape sequences, control characters and invisible characters.

A terminal would execute the sequences, and a model would read text that the user does not see. Users and models
therefore get the same cleaned text.

These are removed: ECMA-48 control sequences (CSI, OSC, DCS, APC, PM, SOS, in 7 and 8 bit), C0 and C1 controls except
line feed and tab, carriage returns, lone surrogates, interlinear annotations, and every character of the tables in
`invisible_characters`. Of a control string (OSC, DCS, …) that does not end on the same line and within a limit, only
the introducer is removed, because text in a wrong encoding often looks like the start of a control string.

The emoji variation selector and joiners are kept if they change the glyphs: in emoji sequences (UTS #51, section 1.4),
in conjuncts after a virama, and between Arabic letters that would join (RFC 5892, appendices A.1 and A.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from dial_client.runtime.invisible_characters import (
    CONTROL,
    DEFAULT_IGNORABLE,
    DUAL_JOINING,
    EMOJI_MODIFIER,
    PICTOGRAPHIC,
    RIGHT_JOINING,
    TRANSPARENT,
    VIRAMA,
    to_character_class,
)

MAX_HELD = 4096
"""Maximum characters of a control string; a stream holds back at most this many until the string ends."""

_CSI = r"(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,16}+"
_STRING = r"(?:\x1b[\]P_^X]|[\x9d\x90\x9f\x9e\x98])"
_PAYLOAD = rf"[^\x00-\x1f\x7f-\x9f]{{0,{MAX_HELD}}}+"
_OTHER = r"\x1b[ -/]{0,16}+"
_SEQUENCE = rf"{_CSI}[@-~]?|{_STRING}(?:{_PAYLOAD}(?:\x07|\x1b\\|\x9c))?|{_OTHER}[0-~]?"
_OPEN = rf"{_CSI}\Z|{_STRING}{_PAYLOAD}\x1b?\Z|{_OTHER}\Z"

_JOINERS = "\u200c\u200d\ufe0f"
_UNWANTED = re.compile(f"[{to_character_class(DEFAULT_IGNORABLE, CONTROL)}]")  # includes the starts of sequences
_ALWAYS = f"[{to_character_class(DEFAULT_IGNORABLE, CONTROL, without=_JOINERS)}]"
_MARKS = to_character_class(TRANSPARENT)
_UNDECIDED = f"[{_JOINERS}][{_MARKS}]{{0,2}}\\Z"
_BEFORE = 3
"""Maximum number of characters before a joiner that decide whether it is kept."""


@cache
def _build_misplaced_pattern() -> str:
    """Return the pattern of joiners and variation selectors that have no effect where they are."""
    pictographic, virama = to_character_class(PICTOGRAPHIC), to_character_class(VIRAMA)
    after_emoji = (
        rf"(?:(?<=[{pictographic}{to_character_class(EMOJI_MODIFIER)}]\u200d)|(?<=[{pictographic}]\ufe0f\u200d))"
    )
    dual, right = to_character_class(DUAL_JOINING), to_character_class(RIGHT_JOINING)
    after_letter = "|".join(rf"(?<=[{dual}]{f'[{_MARKS}]' * marks}\u200c)" for marks in range(_BEFORE))
    # In Bengali and Kannada, the joiner after an initial r precedes the virama (Unicode Standard, chapter 12).
    after_r = r"(?<=\u09b0\u200d)\u09cd|(?<=\u0cb0\u200d)\u0ccd"
    return (
        rf"\ufe0f(?<![{pictographic}]\ufe0f)(?!(?<=[0-9#*]\ufe0f)\u20e3)"
        rf"|\u200d(?!{after_emoji}[{pictographic}]|(?<=[{virama}]\u200d)|{after_r})"
        rf"|\u200c(?!(?<=[{virama}]\u200c)|(?:{after_letter})[{_MARKS}]{{0,2}}[{dual}{right}])"
    )


@cache
def _compile_unseen() -> re.Pattern[str]:
    return re.compile(f"[\u2028\u2029]|{_ALWAYS}|{_build_misplaced_pattern()}")


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when it is first used, because this takes milliseconds, and clean text needs no pattern."""
    return re.compile(pattern)


@dataclass(frozen=True, slots=True)
class CleanText:
    """Text as `sanitize` returns it, with the number of removed characters."""

    text: str
    removed: int
    """The number of removed characters, without carriage returns at the ends of lines."""


def sanitize(text: str) -> str:
    """Return the text without escape sequences, control characters and invisible characters."""
    if _UNWANTED.search(text) is None:
        return text
    return _without_joiners(_without_sequences(text), 0)


def clean(text: str) -> CleanText:
    """Return the text as `sanitize` does, with the number of characters that were removed."""
    lines = text.replace("\r\n", "\n")
    kept = sanitize(lines)
    return CleanText(kept, len(lines) - len(kept))


def describe_removed(count: int) -> str:
    """Return a sentence with the number of removed characters; empty for 0."""
    if not count:
        return ""
    return f"{count:,} invisible {'character was' if count == 1 else 'characters were'} removed"


def escape_unseen(text: str) -> str:
    r"""Return the text with invisible characters written out: ``\u{202e}``. The page does the same (``unseen.js``)."""
    return _compile_unseen().sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def count_unseen(text: str) -> int:
    """Return the number of characters that `escape_unseen` writes out."""
    return sum(1 for _ in _compile_unseen().finditer(text))


def to_one_line(text: str, limit: int) -> str:
    """Return the text as one line of at most `limit` characters, safe to display."""
    line = " ".join(sanitize(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _without_sequences(text: str) -> str:
    """Return the text without control sequences, and without invisible characters other than joiners."""
    return _compile(_ALWAYS).sub("", _compile(_SEQUENCE).sub("", text))


def _without_joiners(text: str, start: int) -> str:
    """Return the text from `start` on without misplaced joiners; the text before `start` is context."""
    if _UNWANTED.search(text, start) is None:
        return text[start:]
    kept = []
    for found in _compile(_build_misplaced_pattern()).finditer(text, start):
        kept.append(text[start : found.start()])
        start = found.end()
    return "".join([*kept, text[start:]])


class SafeStream:
    """`sanitize` for text that arrives in fragments: a sequence that is split over two fragments is removed too."""

    def __init__(self) -> None:
        self._held = ""
        """The possible start of a control sequence."""
        self._before = ""
        """The latest characters that were returned, or removed as a misplaced joiner."""
        self._undecided = ""
        """A joiner whose next letter has not arrived yet."""

    def feed(self, text: str) -> str:
        """Add a fragment, and return the text that can be shown."""
        if not self._held and not self._undecided and _UNWANTED.search(text) is None:
            self._before = (self._before + text)[-_BEFORE:]
            return text
        text = self._held + text
        unfinished = _compile(_OPEN).search(text)
        start = unfinished.start() if unfinished else len(text)
        self._held = text[start:]
        return self._decide(text[:start], is_end=False)

    def finish(self) -> str:
        """End the text, and return the rest of it."""
        held, self._held = self._held, ""
        remainder = self._decide(held, is_end=True)
        self._before = ""
        return remainder

    def _decide(self, text: str, *, is_end: bool) -> str:
        text = self._undecided + _without_sequences(text)
        open_end = None if is_end else _compile(_UNDECIDED).search(text)
        end = open_end.start() if open_end else len(text)
        known = self._before + text[:end]
        shown = _without_joiners(known, len(self._before))
        self._before, self._undecided = known[-_BEFORE:], text[end:]
        return shown
