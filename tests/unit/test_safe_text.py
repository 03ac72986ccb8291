"""Text of servers and models is made safe for a terminal, as a whole and in pieces."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.inner import DEFAULT_IGNORABLE, MAX_HELD, SafeStream, clean, sanitize, to_character_class, to_one_line
from tests.support.fakes import unhurried

ESC, BEL, CSI, OSC, DCS, ST = "\x1b", "\x07", "\x9b", "\x9d", "\x90", "\x9c"
NASTY = st.sampled_from(
    [
        ESC,
        ESC + "[",
        ESC + "]",
        ESC + "P",
        ESC + "_",
        ESC + "^",
        ESC + "X",
        ESC + "\\",
        ESC + "(",
        CSI,
        OSC,
        DCS,
        ST,
        BEL,
        "\x98",
        "\x9e",
        "\x9f",
        "\r",
        "\n",
        "\t",
        "\b",
        "\0",
        "\x7f",
        "\x85",
        "[",
        "]",
        "31",
        ";",
        "?",
        "m",
        "K",
        "8;;http://e.test",
        " ",
        "é",
        "\u202e",
        "\u200b",
        "\U000e0041",
        "\ufe0f",
        "\u200c",
        "\u200d",
        "\u20e3",
        "1",
        "👩",
        "🏽",
        "\u06cc",
        "\u0650",
        "\u0627",
        "\u094d",
        "\u09b0",
        "\u09cd",
        "\u034f",
        "\u115f",
        "\u3164",
        "\u180b",
        "\ufe00",
        "\ud800",
        "text",
        "0" * 70,
        "a" * MAX_HELD,
    ]
)
TEXTS = st.lists(NASTY | st.text(max_size=3), max_size=12).map("".join)
ACTED_UPON = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
JOINERS = "\u200c\u200d\ufe0f"
INVISIBLE = re.compile(f"[{to_character_class(DEFAULT_IGNORABLE, without=JOINERS)}\ufff9-\ufffb]")


def in_pieces(text: str, cuts: list[int]) -> str:
    stream = SafeStream()
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return "".join(stream.feed(text[a:b]) for a, b in pairwise(at)) + stream.finish()


@unhurried
@given(TEXTS)
def test_no_character_that_a_terminal_interprets_remains(text: str) -> None:
    left = sanitize(text)
    assert ACTED_UPON.search(left) is None
    assert INVISIBLE.search(left) is None
    left.encode()


@unhurried
@given(TEXTS, st.lists(st.integers(0, 2 * MAX_HELD), max_size=8))
@example(ESC + "]0;title" + BEL + "x", [1, 3, 11])
@example("a" + ESC + "[" + "1" * 5000 + "mb", [2, 4500])
@example(ESC + "]" + "a" * 5000 + BEL + "b", [4200])
@example(ESC + "]abc" + ESC + "\\d", [6])
@example("👩\u200b\u200d" + ESC + "[31m💻", [1, 2, 3])
@example("👩\u200d\u200d💻", [1, 2, 3])
@example("\u06cc\u0650\u200c\u0650\u0627", [1, 2, 3, 4])
def test_the_result_does_not_depend_on_how_a_text_is_split(text: str, cuts: list[int]) -> None:
    assert in_pieces(text, cuts) == sanitize(text)


@unhurried
@given(TEXTS)
def test_a_text_read_character_by_character_gives_the_same_result(text: str) -> None:
    text = text.replace("a" * MAX_HELD, "a" * 50)
    assert in_pieces(text, list(range(len(text)))) == sanitize(text)


@unhurried
@given(TEXTS)
def test_safe_text_is_unchanged(text: str) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)


@unhurried
@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Cn"], exclude_characters=JOINERS)))
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert sanitize(text) == INVISIBLE.sub("", text)


CLEANED: list[tuple[str, str, str]] = [
    ("colour", f"{ESC}[1;31mred{ESC}[0m", "red"),
    ("colour in eight bits", f"{CSI}31mred", "red"),
    ("clearing the screen", f"a{ESC}[2J{ESC}[Hb", "ab"),
    ("private modes", f"a{ESC}[?1049hb{ESC}[?25l", "ab"),
    ("the window's title", f"{ESC}]0;owned{BEL}text", "text"),
    ("the window's title, ended by a string terminator", f"{ESC}]0;owned{ESC}\\text", "text"),
    ("the window's title in eight bits", f"{OSC}0;owned{ST}text", "text"),
    ("a link that hides its target", f"{ESC}]8;;http://e.test{BEL}bank{ESC}]8;;{BEL}", "bank"),
    ("the clipboard", f"{ESC}]52;c;cm0gLXJmIC8={BEL}ok", "ok"),
    ("device control", f"{ESC}P+q544e{ESC}\\ok", "ok"),
    ("application commands", f"{ESC}_Gf=100;AAAA{ESC}\\ok", "ok"),
    ("privacy messages", f"{ESC}^secret{ESC}\\ok", "ok"),
    ("start of string", f"{ESC}Xsecret{ESC}\\ok", "ok"),
    ("character sets", f"{ESC}(0lqqk{ESC}(B", "lqqk"),
    ("reset", f"{ESC}cok", "ok"),
    ("a lone escape", f"a{ESC}", "a"),
    ("an escape within an escape", f"{ESC}{ESC}[31mred", "red"),
    ("an escape within a sequence", f"{ESC}[3{ESC}[31mred", "red"),
    ("overwriting after a carriage return", "approve: no\rapprove: yes", "approve: noapprove: yes"),
    ("deleting with backspaces", "abc\b\b\bxyz", "abcxyz"),
    ("the bell", f"a{BEL}b", "ab"),
    ("text from right to left", "user\u202etxt.exe", "usertxt.exe"),
    ("tag characters", "hello\U000e0068\U000e0069", "hello"),
    ("supplementary variation selectors", "hello\U000e0100\U000e0170", "hello"),
    ("zero width", "pass\u200bword", "password"),
    ("a lone surrogate", "a\ud800b", "ab"),
    ("line breaks and tabs", "a\n\tb\r\n", "a\n\tb\n"),
    ("a sequence that never ends", f"a{ESC}]0;" + "x" * 10, "a0;" + "x" * 10),
    ("a sequence that does not end on its line", f"a{ESC}]0;x\nthe rest{BEL}", "a0;x\nthe rest"),
    ("a quotation mark in the wrong encoding", "â\x80\x9cfoo\x9d bar â\x80\x9cbaz\x9d", "âfoo bar âbaz"),
    ("emoji", "👍🏽 ☺\ufe0f", "👍🏽 ☺\ufe0f"),
    ("a family", "👩\u200d👩\u200d👧!", "👩\u200d👩\u200d👧!"),
    ("a runner with a skin tone", "🏃🏽\u200d♀\ufe0f", "🏃🏽\u200d♀\ufe0f"),
    ("a flag of two emoji", "🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"),
    ("a keycap", "1\ufe0f\u20e3", "1\ufe0f\u20e3"),
    ("bits in joiners between emoji", "👩\u200d\u200d\u200c👩\u200d x", "👩👩 x"),
    ("bits in selectors", "1\ufe0f a\ufe0f ☺\ufe0f\ufe0f\ufe0e", "1 a ☺\ufe0f"),
    ("selectors between letters", "a\ufe00b\ufe0ec\U000e0100", "abc"),
    ("a flag spelled in tags", "🏴\U000e0067\U000e0062\U000e007f", "🏴"),
    ("a joiner between Persian letters that would join", "\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    (
        "a joiner between Persian letters with marks",
        "\u06cc\u064e\u0651\u200c\u064e\u0627",
        "\u06cc\u064e\u0651\u200c\u064e\u0627",
    ),
    ("a joiner after a letter that never joins", "\u0631\u200c\u0647", "\u0631\u0647"),
    ("joiners between Latin letters", "pass\u200cwo\u200drd", "password"),
    (
        "a conjunct of Hindi",
        "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",
        "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937",
    ),
    ("an initial r of Bengali", "\u09b0\u200d\u09cd\u09af", "\u09b0\u200d\u09cd\u09af"),
    ("two joiners after a virama", "\u094d\u200d\u200c\u0937", "\u094d\u200d\u0937"),
    ("fillers of Hangul", "a\u115f\u1160\u3164\uffa0b", "ab"),
    ("selectors of Mongolian", "\u1820\u180b\u180d\u180f\u1821", "\u1820\u1821"),
    ("a grapheme joiner", "a\u034fb", "ab"),
]


@pytest.mark.parametrize(("text", "left"), [case[1:] for case in CLEANED], ids=[case[0] for case in CLEANED])
def test_unsafe_sequences_are_removed_and_other_text_is_kept(text: str, left: str) -> None:
    assert sanitize(text) == left
    assert in_pieces(text, list(range(len(text)))) == left


def test_every_invisible_control_and_format_character_is_removed() -> None:
    seen = (
        set(range(0x600, 0x606)) | {0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD} | set(range(0x13430, 0x13440))
    )
    left = {
        hex(point)
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in ("Cc", "Cf", "Cs") and sanitize(chr(point)) and point not in seen
    }
    assert left == {"0x9", "0xa"}


def test_text_that_cannot_be_an_escape_sequence_is_shown_at_once() -> None:
    stream = SafeStream()
    assert stream.feed("plain text") == "plain text"
    assert stream.feed(f"{ESC}[31") == ""
    assert stream.feed("mred") == "red"
    assert stream.finish() == ""


def test_an_unfinished_sequence_is_held_back_up_to_a_limit() -> None:
    stream = SafeStream()
    assert stream.feed(f"{ESC}]0;") == ""
    shown = "".join(stream.feed("x" * 100) for _ in range(100))
    assert len(shown) == 10_002


def test_held_back_text_is_shown_at_the_end_and_not_with_the_next_text() -> None:
    stream = SafeStream()
    assert stream.feed(f"the answer{OSC} is 4") == "the answer"
    assert stream.finish() == " is 4"
    assert stream.feed("next") == "next"


def test_many_unfinished_sequences_produce_no_text() -> None:
    stream = SafeStream()
    shown = 0
    for _ in range(20_000):
        shown += len(stream.feed(ESC + "]"))
    assert shown + len(stream.finish()) == 0


LINES: list[tuple[str, int, str]] = [
    ("short", 10, "short"),
    ("exactly so", 10, "exactly so"),
    ("a little longer", 10, "a little …"),
    ("two\nlines\r\n\tand more", 80, "two lines and more"),
    (f"{ESC}[31mred{ESC}[0m\u2028 line", 80, "red line"),
    ("   ", 10, ""),
    ("ab", 1, "…"),
]


@pytest.mark.parametrize(("text", "most", "line"), LINES, ids=[repr(line) for _, _, line in LINES])
def test_one_line_joins_lines_and_limits_the_length(text: str, most: int, line: str) -> None:
    assert to_one_line(text, most) == line


REMOVED: list[tuple[str, str, int]] = [
    ("plain\r\ntext\r\n", "plain\ntext\n", 0),
    ("a\u200bb\u2060c\r", "abc", 3),
    ("👩\u200d💻", "👩\u200d💻", 0),
]


@pytest.mark.parametrize(("text", "left", "removed"), REMOVED, ids=ascii)
def test_the_number_of_removed_characters_is_reported(text: str, left: str, removed: int) -> None:
    assert (clean(text).text, clean(text).removed) == (left, removed)


@unhurried
@given(TEXTS, st.integers(1, 30))
def test_one_line_of_any_text_is_a_single_safe_line(text: str, most: int) -> None:
    line = to_one_line(text, most)
    assert len(line) <= most
    assert len(line.splitlines()) <= 1
    assert ACTED_UPON.search(line) is None
