"""Answers in Markdown, rendered for a terminal while they stream."""

# ruff: noqa: RUF001 - formulas contain such characters

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth as count_columns

from tests.inner import DARK, MONO, THEMES, MarkdownStream, Theme, choose_theme, to_unicode

SGR = re.compile(r"\x1b\[[0-9;]+m")
LINK = re.compile(r"\x1b\]8;(?:id=[0-9a-f]+)?;(https?://[\x21-\x7e]+)?\x1b\\")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]")
FRAGMENTS = (
    *(
        "# ",
        "## ",
        "- ",
        "* ",
        "1. ",
        "2) ",
        "> ",
        "  ",
        "    ",
        "\n",
        "\n\n",
        "```",
        "~~~",
        "```python\n",
        "|",
        "|---|:-:|\n",
    ),
    *(
        "---\n",
        "**",
        "*",
        "_",
        "~~",
        "`",
        "[",
        "](https://a.example/b)",
        "](x)",
        "![",
        "$",
        "$$",
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "\\",
    ),
    *(
        "word",
        "long" * 30,
        " ",
        "日本語",
        "👩‍👩‍👧",
        "e\u0301",
        "\t",
        "<br>",
        "&amp;",
        "&#x202e;",
        "&#27;",
        "- [x] ",
        "https://b.example/",
    ),
    *(
        "\\frac{a}{b}",
        "x^2",
        "/* ",
        "*/",
        "'''",
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\u202e",
        "\u200b",
        "\r",
        "\x9b1A",
        "a | b | c\n",
    ),
)
MARKDOWN = st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)


def render(text: str, columns: int = 80, theme: Theme = MONO) -> str:
    stream = MarkdownStream(lambda: columns, theme)
    return stream.feed(text) + stream.finish()


def plain(text: str) -> str:
    return SGR.sub("", LINK.sub("", text))


def shown(text: str, columns: int = 80) -> list[str]:
    return plain(render(text, columns)).splitlines()


@given(MARKDOWN, st.data())
def test_the_output_does_not_depend_on_how_the_answer_was_split(text: str, data: st.DataObject) -> None:
    stream = MarkdownStream(lambda: 60, DARK)
    printed, at = "", 0
    while at < len(text):
        end = at + data.draw(st.integers(1, 30))
        printed += stream.feed(text[at:end])
        stream.draft(10)
        at = end
    assert printed + stream.finish() == render(text, 60, DARK)


@given(MARKDOWN, st.integers(40, 300))
def test_no_style_or_control_character_leaves_its_line(text: str, columns: int) -> None:
    stream = MarkdownStream(lambda: columns, DARK)
    printed = stream.feed(text)
    draft = stream.draft(7)
    assert draft.count("\n") < 7
    assert CONTROL.search(SGR.sub("", draft).replace("\n", "")) is None
    for line in SGR.sub("", draft).splitlines():
        assert count_columns(line) <= columns
    printed += stream.finish()
    assert CONTROL.search(plain(printed).replace("\n", "").replace("\t", "")) is None
    assert printed.endswith("\n") or not printed
    for line in printed.splitlines():
        assert line.count("\x1b]8;id=") == line.count("\x1b]8;;\x1b")
        assert len(SGR.findall(line)) == 2 * line.count("\x1b[0m")


@given(
    st.lists(st.text(alphabet=st.sampled_from("ab(){}[]\"'/*#`<>!-\\ \t=$日é"), max_size=40), max_size=12),
    st.sampled_from(("python", "js", "c", "html", "yaml", "no-such", "")),
)
def test_code_is_printed_unchanged(lines: list[str], language: str) -> None:
    lines = [line for line in lines if "~~~" not in line]
    printed = shown("~~~~" + language + "\n" + "".join(f"{line}\n" for line in lines) + "~~~~\n")
    assert printed[1:-1] == lines


def test_long_lines_of_code_are_not_broken() -> None:
    line = "x = " + " + ".join(map(str, range(500)))
    for begin in ("", "- in a list\n  ", "> "):
        quote = "> " if begin == "> " else ""
        assert line in shown(f"{begin}```python\n{quote}{line}\n{quote}```\n", 40)


def test_blocks_are_printed_as_soon_as_they_cannot_change() -> None:
    stream = MarkdownStream(lambda: 80, MONO)
    assert stream.feed("Hello **wor") == ""
    assert plain(stream.draft(5)) == "Hello wor"
    assert stream.feed("ld**\n") == ""
    assert plain(stream.feed("\n- one\n")) == "Hello world\n"
    assert plain(stream.feed("- two\n")) == "\n• one\n"
    assert plain(stream.feed("\n```sh\nls\n")).splitlines()[0:2] == ["• two", ""]
    assert plain(stream.feed("cd /\n")) == "cd /\n"
    assert stream.feed("```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n").count("\n") == 1
    assert plain(stream.draft(9)).splitlines()[1:] == ["a │ b", "──┼──", "1 │ 2"]
    assert plain(stream.feed("\nEnd")).splitlines()[1:] == ["a │ b", "──┼──", "1 │ 2"]
    assert plain(stream.finish()) == "\nEnd\n"


def test_a_draft_shows_the_end_of_the_unfinished_block() -> None:
    stream = MarkdownStream(lambda: 40, MONO)
    stream.feed("```\n" + "x" * 500)
    assert stream.draft(3).splitlines() == ["x" * 40, "x" * 40, "x" * 20]
    assert stream.draft(0) == ""


def test_a_very_long_table_is_printed_row_by_row() -> None:
    stream = MarkdownStream(lambda: 80, MONO)
    stream.feed("| n | text |\n|--|--|\n")
    rows = [stream.feed(f"| {number} | words |\n") for number in range(100)]
    assert rows[:50] == [""] * 50
    assert plain(rows[-1]) == "99 │ words\n"


def test_lists_quotes_and_tasks_are_rendered() -> None:
    text = "1. one\n   - nested\n     more\n10. ten\n- [ ] open\n- [x] done\n\n> quoted\n> - item\n>\n> end\n\ntext\n"
    assert shown(text) == [
        *("1. one", "   • nested", "     more", "10. ten", "☐ open", "☑ done", ""),
        *("│ quoted", "│ • item", "│", "│ end", "", "text"),
    ]


def test_list_items_with_irregular_indentation_are_nested() -> None:
    assert shown("1. one\n  - two\n      - three\n2. four\n") == ["1. one", "   • two", "     ◦ three", "2. four"]
    two_columns_a_level = "1. one\n  - two\n    - three\n      text\n  - four\n"
    assert shown(two_columns_a_level) == ["1. one", "   • two", "     ◦ three", "       text", "   • four"]


def test_a_row_with_more_cells_than_columns_keeps_their_text() -> None:
    assert shown("| a | b |\n|---|---|\n| `x | y` | z |\ntext\n")[-2:] == ["`x │ y` | z", "text"]


def test_text_below_a_table_is_no_row_of_it() -> None:
    assert shown("a | b\n--|--\n1 | 2\ntext\n") == ["a │ b", "──┼──", "1 │ 2", "text"]


def test_east_asian_text_is_broken_between_letters_but_not_before_punctuation() -> None:
    assert shown("Hello " + "日" * 7 + "、" + "本" * 5, 20) == ["Hello " + "日" * 6, "日、" + "本" * 5]


def test_a_number_at_the_start_of_a_line_of_prose_begins_no_list() -> None:
    assert shown("That was in\n1986. A good year.\n") == ["That was in", "1986. A good year."]


def test_text_that_only_looks_like_markdown_is_unchanged() -> None:
    for text in (
        "2*3*4 = 24",
        "a*b*c",
        "snake_case_name",
        "1 < 2 > 0",
        "[1] and [ref][1]",
        "C:\\dir",
        "a | b",
        "#tag",
        "1.5",
    ):
        assert shown(text) == [text.replace("\\\\", "\\")]
    assert shown("Title\n=====\ntext") == ["Title", "text"]
    assert shown("中*文*中") == ["中文中"]


def test_tables_fit_the_width_and_their_columns_are_aligned() -> None:
    text = "| Name | 説明 | n |\n|:--|:-:|--:|\n| a | 日本語のとても長いテキスト | 1 |\n| emoji 👩‍👩‍👧 | x | 22 |\n"
    for columns in (40, 60, 80, 200, 300):
        lines = shown(text, columns)
        assert all(count_columns(line) <= columns for line in lines)
        bars = {tuple(count_columns(line[:at]) for at, char in enumerate(line) if char in "│┼") for line in lines}
        assert len(bars) == 1
    narrow = shown("|" + "head |" * 20 + "\n|" + "--|" * 20 + "\n|" + "cell |" * 20 + "\n", 40)
    assert narrow == ["head: cell"] * 20


def test_the_host_of_a_link_is_visible() -> None:
    for text, expected in {
        "[google.com](https://evil.example/x)": "google.com (evil.example)",
        "[a](https://google.com@evil.example:8080/)": "a (evil.example:8080)",
        "<https://a.example/>": "https://a.example/",
        "[a.example/b](https://a.example/b)": "a.example/b",
        "https://a.example/b.": "https://a.example/b.",
        "[file](../notes.md)": "file (../notes.md)",
        "[x](javascript:alert(1))": "[x](javascript:alert(1))",
        "![chart](https://a.example/c.png)": "[image: chart] (a.example)",
        "[![b](https://b.example/y.png)](https://a.example/)": "[image: b] (b.example) (a.example)",
        "[a](https://xn--80ak6aa92e.com)": "a (xn--80ak6aa92e.com)",
    }.items():
        assert shown(text) == [expected]
    assert LINK.findall(render("[a](https://a.example/b) [b](mailto:c@d.example)")) == ["https://a.example/b", ""]


def test_formulas_are_converted_to_unicode() -> None:
    for source, expected in {
        r"$\frac{-b \pm \sqrt{b^2-4ac}}{2a}$": "(-b ± √(b²-4ac))/(2a)",
        r"\(x_{ij}^{k+1} \le \alpha\)": "xᵢⱼᵏ⁺¹ ≤ α",
        r"$\mathbb{R}^n \to \mathbb{R}$": "ℝⁿ → ℝ",
        r"$\unknown{x} + 1$": r"\unknown{x} + 1",
        "It costs $5 or $10.": "It costs $5 or $10.",
        "$HOME and $PATH": "$HOME and $PATH",
        "`$x$`": "$x$",
        "$$\n\\int_0^\\infty e^{-x}\\,dx\n$$": "    ∫₀^∞ e⁻ˣ dx",
        "\\[\na \\\\ b\n\\]": "    a\n    b",
        "$$\nnever closed\n\ntext": "$$\nnever closed\n\ntext",
    }.items():
        assert "\n".join(shown(source)) == expected
    assert to_unicode("{" * 1000 + "\\frac" * 1000)


def test_a_multi_line_comment_has_the_colour_of_comments() -> None:
    comment = f"\x1b[{DARK.tokens['Comment']}m"
    printed = render("```js\nlet a = 1; /* one\ntwo */ let b = '/*';\nlet c\n```\n", theme=DARK).splitlines()
    assert f"{comment}/* one" in printed[1]
    assert printed[2].startswith(f"{comment}two */")
    assert comment not in printed[3]


def test_an_unclosed_fence_ends_with_its_list_item_or_the_answer() -> None:
    assert shown("```\ncode **x**")[1] == "code **x**"
    assert shown("- a\n  ```\n  code\n- b")[2:] == ["code", "- b", "╰" + "─" * 59]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm-256color", "COLORFGBG": "15;0"}, "dark"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;default;15"}, "light"),
        ({"TERM": "xterm-256color"}, "ansi"),
        ({"TERM": "xterm", "COLORFGBG": "15;0"}, "ansi"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "mono"),
    ],
)
def test_the_environment_determines_the_theme(environment: dict[str, str], expected: str) -> None:
    assert choose_theme("auto", environment).name == expected
    assert all(choose_theme(name, environment).name == name for name in THEMES)
