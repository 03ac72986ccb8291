"""Makes text of models and servers safe: removes escape sequences, control characters and invisible characters.

A terminal would execute the sequences, and a model would read text that the user does not see. Users and models
therefore get the same cleaned text.

These are removed: ECMA-48 control sequences (CSI, OSC, DCS, APC, PM, SOS, in 7 and 8 bit), C0 and C1 controls except
line feed and tab, carriage returns, lone surrogates, interlinear annotations, and every invisible character of the
tables below: ranges of code points of the Unicode Character Database, in hexadecimal, because Python's ``unicodedata``
lacks these properties. The page has the same tables (``serve/page/invisible_characters.js``); a test compares them.
Of a control string (OSC, DCS, …) that does not end on the same line and within a limit, only the introducer is removed,
because text in a wrong encoding often looks like the start of a control string.

The emoji variation selector and joiners are kept if they change the glyphs: in emoji sequences (UTS #51, section 1.4),
in conjuncts after a virama, and between Arabic letters that would join (RFC 5892, appendices A.1 and A.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from dial_client.runtime.lazy_pattern import compile_lazily

UNICODE_VERSION = "17.0.0"

# ``Default_Ignorable_Code_Point`` (DerivedCoreProperties.txt): characters without a glyph; some are reserved.
DEFAULT_IGNORABLE = (
    "ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8 "
    "1bca0-1bca3 1d173-1d17a e0000-e0fff"
)

# ``Bidi_Control`` (PropList.txt): they change the direction of text. All of them are in `DEFAULT_IGNORABLE` too.
BIDI_CONTROL = "61c 200e-200f 202a-202e 2066-2069"

# Controls except tab and line feed, lone surrogates, and interlinear annotations (General_Category Cc, Cs, Cf).
CONTROL = "0-8 b-1f 7f-9f d800-dfff fff9-fffb"

# ``Extended_Pictographic`` (emoji-data.txt): characters that variation selectors and joiners turn into emoji.
PICTOGRAPHIC = (
    "a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 23cf 23e9-23f3 23f8-23fa 24c2 25aa-25ab 25b6 "
    "25c0 25fb-25fe 2600-2604 260e 2611 2614-2615 2618 261d 2620 2622-2623 2626 262a 262e-262f 2638-263a 2640 "
    "2642 2648-2653 265f-2660 2663 2665-2666 2668 267b 267e-267f 2692-2697 2699 269b-269c 26a0-26a1 26a7 "
    "26aa-26ab 26b0-26b1 26bd-26be 26c4-26c5 26c8 26ce-26cf 26d1 26d3-26d4 26e9-26ea 26f0-26f5 26f7-26fa 26fd "
    "2702 2705 2708-270d 270f 2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 2757 "
    "2763-2764 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f004 "
    "1f02c-1f02f 1f094-1f09f 1f0af-1f0b0 1f0c0 1f0cf-1f0d0 1f0f6-1f0ff 1f170-1f171 1f17e-1f17f 1f18e "
    "1f191-1f19a 1f1ae-1f1e5 1f201-1f20f 1f21a 1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f25f 1f266-1f321 "
    "1f324-1f393 1f396-1f397 1f399-1f39b 1f39e-1f3f0 1f3f3-1f3f5 1f3f7-1f3fa 1f400-1f4fd 1f4ff-1f53d "
    "1f549-1f54e 1f550-1f567 1f56f-1f570 1f573-1f57a 1f587 1f58a-1f58d 1f590 1f595-1f596 1f5a4-1f5a5 1f5a8 "
    "1f5b1-1f5b2 1f5bc 1f5c2-1f5c4 1f5d1-1f5d3 1f5dc-1f5de 1f5e1 1f5e3 1f5e8 1f5ef 1f5f3 1f5fa-1f64f "
    "1f680-1f6c5 1f6cb-1f6d2 1f6d5-1f6e5 1f6e9 1f6eb-1f6f0 1f6f3-1f6ff 1f7da-1f7ff 1f80c-1f80f 1f848-1f84f "
    "1f85a-1f85f 1f888-1f88f 1f8ae-1f8af 1f8bc-1f8bf 1f8c2-1f8cf 1f8d9-1f8ff 1f90c-1f93a 1f93c-1f945 "
    "1f947-1f9ff 1fa58-1fa5f 1fa6e-1faff 1fc00-1fffd"
)

# ``Emoji_Modifier`` (emoji-data.txt): the skin tones.
EMOJI_MODIFIER = "1f3fb-1f3ff"

# ``Canonical_Combining_Class=Virama`` (UnicodeData.txt): a joiner after a virama changes the form of a syllable.
VIRAMA = (
    "94d 9cd a4d acd b4d bcd c4d ccd d3b-d3c d4d dca e3a eba f84 1039-103a 1714-1715 1734 17d2 1a60 1b44 "
    "1baa-1bab 1bf2-1bf3 2d7f a806 a82c a8c4 a953 a9c0 aaf6 abed 10a3f 11046 11070 1107f 110b9 11133-11134 "
    "111c0 11235 112ea 1134d 113ce-113d0 11442 114c2 115bf 1163f 116b6 1172b 11839 1193d-1193e 119e0 11a34 11a47 11a99 "
    "11c3f 11d44-11d45 11d97 11f41-11f42 1612f"
)

# ``Joining_Type=Dual_Joining`` (DerivedJoiningType.txt), of the Arabic script only.
DUAL_JOINING = (
    "620 626 628 62a-62e 633-63f 641-647 649-64a 66e-66f 678-687 69a-6bf 6c1-6c2 6cc 6ce 6d0-6d1 6fa-6fc 6ff "
    "750-758 75c-76a 76d-770 772 775-777 77a-77f 886 889-88d 88f 8a0-8a9 8af-8b0 8b3-8b8 8ba-8c8"
)

# ``Joining_Type=Right_Joining`` (DerivedJoiningType.txt), of the Arabic script only.
RIGHT_JOINING = (
    "622-625 627 629 62f-632 648 671-673 675-677 688-699 6c0 6c3-6cb 6cd 6cf 6d2-6d3 6d5 6ee-6ef 759-75b "
    "76b-76c 771 773-774 778-779 870-882 88e 8aa-8ac 8ae 8b1-8b2 8b9"
)

# ``Joining_Type=Transparent`` (DerivedJoiningType.txt), of the Arabic script only: the marks of its letters.
TRANSPARENT = "610-61a 64b-65f 670 6d6-6dc 6df-6e4 6e7-6e8 6ea-6ed 897-89f 8ca-8e1 8e3-8ff"


def parse_ranges(table: str) -> tuple[range, ...]:
    """Return the ranges of code points in a table."""
    ends = (item.partition("-") for item in table.split())
    return tuple(range(int(first, 16), int(last or first, 16) + 1) for first, _, last in ends)


def to_character_class(*tables: str, without: str = "") -> str:
    """Return the content of a regular expression's character class for some tables, except the characters `without`."""
    ranges = [found for table in tables for found in parse_ranges(table)]
    for char in map(ord, without):
        ranges = [part for found in ranges for part in _split(found, char)]
    return "".join(f"\\U{found.start:08x}-\\U{found.stop - 1:08x}" for found in ranges)


def _split(found: range, char: int) -> tuple[range, ...]:
    if char not in found:
        return (found,)
    return tuple(part for part in (range(found.start, char), range(char + 1, found.stop)) if part)


# Maximum characters of a control string; a stream holds back at most this many until the string ends.
MAX_HELD = 4096

_CSI = r"(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,16}+"
_STRING = r"(?:\x1b[\]P_^X]|[\x9d\x90\x9f\x9e\x98])"
_PAYLOAD = rf"[^\x00-\x1f\x7f-\x9f]{{0,{MAX_HELD}}}+"
_OTHER = r"\x1b[ -/]{0,16}+"
_SEQUENCE = rf"{_CSI}[@-~]?|{_STRING}(?:{_PAYLOAD}(?:\x07|\x1b\\|\x9c))?|{_OTHER}[0-~]?"
_OPEN = rf"{_CSI}\Z|{_STRING}{_PAYLOAD}\x1b?\Z|{_OTHER}\Z"

_JOINERS = "\u200c\u200d\ufe0f"
_UNWANTED = compile_lazily(f"[{to_character_class(DEFAULT_IGNORABLE, CONTROL)}]")  # includes the starts of sequences
_ALWAYS = f"[{to_character_class(DEFAULT_IGNORABLE, CONTROL, without=_JOINERS)}]"
_MARKS = to_character_class(TRANSPARENT)
_UNDECIDED = f"[{_JOINERS}][{_MARKS}]{{0,2}}\\Z"
# Maximum number of characters before a joiner that decide whether it is kept.
_BEFORE = 3


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
        # The possible start of a control sequence.
        self._held = ""
        # The latest characters that were returned, or removed as a misplaced joiner.
        self._before = ""
        # A joiner whose next letter has not arrived yet.
        self._undecided = ""

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


def escape_line(text: str) -> str:
    """Return a line with tabs as spaces, and with unprintable and unsafe characters escaped."""
    return "".join(map(_escape_character, text.replace("\t", "    ")))


def _escape_character(character: str) -> str:
    if character.isprintable() and sanitize(character) == character:
        return character
    point = ord(character)
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
