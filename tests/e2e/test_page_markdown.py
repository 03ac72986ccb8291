"""The page's Markdown parser, run by Node: its results, linear time, and announcements for screen readers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.node_program import import_from, needs_node, run_node

pytestmark = needs_node


def node(program: str, given: Any) -> Any:
    """Run a program with the page's ``parseBlocks``, ``parseInline`` and ``parseSafeUrl``, and the value ``given``."""
    modules = import_from("markdown_blocks.js", "parseBlocks")
    modules += import_from("markdown_inline.js", "parseInline, parseSafeUrl, toPlainText")
    return run_node(f"{modules}const given = JSON.parse(await new Response(process.stdin).text());\n{program}", given)


def inline(texts: list[str], *, is_open: bool = False) -> list[Any]:
    option = json.dumps({"open": is_open})
    return list(node(f"console.log(JSON.stringify(given.map((text) => parseInline(text, {option}))))", texts))


def blocks(texts: list[str]) -> list[Any]:
    return list(node("console.log(JSON.stringify(given.map(parseBlocks)))", texts))


def strong(*inside: Any) -> dict[str, Any]:
    return {"t": "strong", "c": list(inside)}


def em(*inside: Any) -> dict[str, Any]:
    return {"t": "em", "c": list(inside)}


def test_inline_markup_is_parsed() -> None:
    cases: dict[str, list[Any]] = {
        "a **b *c* d** e": ["a ", strong("b ", em("c"), " d"), " e"],
        "*foo**bar*": [em("foo**bar")],
        "snake_case_name _em_": ["snake_case_name ", em("em")],
        "2 * 3 * 4": ["2 * 3 * 4"],
        "**Array [0, 5)** x": [strong("Array [0, 5)"), " x"],
        "`` a ` b `` `c": [{"t": "code", "text": "a ` b"}, " `c"],
        "~~a~~ ~b~": [{"t": "del", "c": ["a"]}, " ~b~"],
        r"\*no\* &amp; <b>": ["*no* & <b>"],
        "a\nb<br>c": ["a", {"t": "br"}, "b", {"t": "br"}, "c"],
        '[l*i*nk](http://a.b "t")': [{"t": "link", "href": "http://a.b", "c": ["l", em("i"), "nk"]}],
        "![i](http://c/d.png)": [{"t": "image", "href": "http://c/d.png", "alt": "i"}],
        "https://a.b/c(d). x": [{"t": "link", "href": "https://a.b/c(d)", "c": ["https://a.b/c(d)"]}, ". x"],
        "[a] (b) [c": ["[a] (b) [c"],
        "$5 and $10, $x$.": ["$5 and $10, ", {"t": "math", "text": "x", "isDisplay": False}, "."],
        r"\(a*b*c\) \$x$": [{"t": "math", "text": "a*b*c", "isDisplay": False}, " $x$"],
        "$$x$$ US$5 and A$6": [{"t": "math", "text": "x", "isDisplay": True}, " US$5 and A$6"],
    }
    assert dict(zip(cases, inline(list(cases)), strict=True)) == cases


def test_incomplete_markup_is_parsed_like_complete_markup() -> None:
    cases: dict[str, list[Any]] = {
        "so **bold": ["so ", strong("bold")],
        "`co": [{"t": "code", "text": "co"}],
        "see [the page](http://exam": ["see ", "the page"],
        "a * b": ["a * b"],
    }
    found = [[part for part in nodes if part] for nodes in inline(list(cases), is_open=True)]
    assert [_merged(nodes) for nodes in found] == [_merged(nodes) for nodes in cases.values()]


def _merged(nodes: list[Any]) -> list[Any]:
    merged: list[Any] = []
    for node_ in nodes:
        if merged and isinstance(node_, str) and isinstance(merged[-1], str):
            merged[-1] += node_
        else:
            merged.append(node_)
    return merged


def test_block_markup_is_parsed() -> None:
    cases = {
        "# H #\ntext": ["heading H", "paragraph text"],
        "a\n---\nb": ["paragraph a", "rule", "paragraph b"],
        "```js\nlet a;\n\n```\nb": ["code let a;", "paragraph b"],
        "```\nopen": ["code open"],
        "in 1986. A year\n1986. no list": ["paragraph in 1986. A year\n1986. no list"],
        "| a | b |\n|---|:-:|\n| `1|2` | 3 |\n\nx": ["table [['`1|2`', '3']]", "paragraph x"],
        "| no | table |\ntext": ["paragraph | no | table |\ntext"],
        "> a\nb\n\nc": ["quote", "paragraph c"],
        "- a\n- b\n\nc": ["list 2", "paragraph c"],
        "a\n$$\nx\n$$\nb": ["paragraph a", "math x", "paragraph b"],
        "$$\nx\n\ny": ["paragraph $$\nx", "paragraph y"],
        "": [],
    }
    assert dict(zip(cases, ([_brief(block) for block in found] for found in blocks(list(cases))), strict=True)) == cases


def _brief(block: dict[str, Any]) -> str:
    contents = {"table": block.get("rows"), "list": len(block.get("items", [])), "quote": "", "rule": ""}
    return f"{block['type']} {contents.get(block['type'], block.get('text'))}".strip()


def test_nested_lists_with_irregular_indentation_are_parsed() -> None:
    [found] = blocks(["1. one\n  - two columns\n   - three\n2. two\n\n   more\n- [x] done"])
    numbers, tasks = found
    assert [len(item["blocks"]) for item in numbers["items"]] == [2, 2]
    assert [len(numbers["items"][0]["blocks"][1]["items"]), numbers["isLoose"]] == [2, True]
    assert [item["done"] for item in tasks["items"]] == [True]


def test_only_http_and_mail_links_are_links() -> None:
    bad = [
        "javascript:alert(1)",
        "JaVaScRiPt:x",
        " javascript:x",
        "java\nscript:x",
        "\x01javascript:x",
        "data:text/html,x",
    ]
    bad += ["vbscript:x", "file:///etc/passwd", "blob:http://a/b", "//a.b", "/a", "about:blank", "http://", "ftp://a.b"]
    good = ["http://a.b", "https://a.b/c?d#e", "mailto:a@b.c", "HTTPS://A.B"]
    found = node("console.log(JSON.stringify(given.map((one) => parseSafeUrl(one) !== null)))", [*bad, *good])
    assert found == [False] * len(bad) + [True] * len(good)


PIECES = ["*a", "a*", "_a*", "**a ", "`a``", "[", "[](", "[a](", '](a "', "![a](b)", "~~a", "<http://", "&amp", "\\*"]
PIECES += [
    "*_~`[",
    "https://a.b/ ",
    "> ",
    "- a\n",
    "  - a\n",
    "1. a\n\n",
    "|a|b|\n|-|-|\n",
    "| ",
    "```\na\n",
    "# a\n",
    "\n",
]
PIECES += ["$a ", "$a$", "$$a", "\\(", "\\[a\n", "$$a\n"]
PIECES += [">>>>>>>>>>>>>>>>>>>> a\n", "- - ", " "]


@pytest.mark.parametrize("size", [100_000])
def test_parsing_takes_linear_time(size: int) -> None:
    """Compare times within one run: eight times the text may take about eight times as long, not sixty-four times."""
    program = """
    const time = (text) => {
      const began = process.cpuUsage();
      parseBlocks(text);
      parseInline(text, { open: true });
      const { user, system } = process.cpuUsage(began);
      return user + system;
    };
    const slow = [];
    for (const piece of given.pieces) {
      const some = piece.repeat(Math.ceil(given.size / 8 / piece.length));
      time(some);
      const few = Math.max(2_000, Math.min(time(some), time(some), time(some)));
      const much = some.repeat(8);
      // The collector of garbage may run in any one of them: what is slow is slow each time.
      const ratios = [];
      do ratios.push(time(much) / few); while (ratios.at(-1) > 32 && ratios.length < 3);
      if (Math.min(...ratios) > 32) slow.push([piece, ratios]);
    }
    console.log(JSON.stringify(slow));
    """
    assert node(program, {"pieces": PIECES, "size": size}) == []


ANSWER = """## **Plan** for `today`

It is *sunny*. Take e.g. 3.5 litres. **One. Two.** See [the map](https://a.test/b.c?d=1. "t")!

- [x] first
2. second, without an end

| a | b |
|---|---|
| 1 | 2 |

```py
print("never. read.")

```

$$
x = 1. y
$$

---

終わりです。次。Done"""
SPOKEN = (
    "Plan for today It is sunny. Take e.g. 3.5 litres. One. Two. See the map! first 2. second, without an end "
    "Table, 1 row. Code, 2 lines. Formula. 終わりです。次。Done The end."
)


def speak(pieces: list[str], *, ticks: int) -> list[str]:
    """Return the announcements of an answer in fragments; the pause after each announcement lasts `ticks` fragments."""
    program = f"""
    {import_from("spoken_answer.js", "SpokenAnswer")}
    const [spoken, waiting] = [[], []];
    const answer = new SpokenAnswer((text) => spoken.push(text), (action) => waiting.push(action));
    given.forEach((piece, at) => {{
      answer.append(piece);
      if (waiting.length > 1) throw new Error("two announcements at a time");
      if (at % {ticks} === 0) waiting.pop()?.();
    }});
    answer.finish("The end.");
    answer.finish("The end.");
    waiting.pop()?.();
    console.log(JSON.stringify(spoken));
    """
    return list(node(program, pieces))


@pytest.mark.parametrize(("size", "ticks"), [(1, 1), (3, 2), (7, 1), (7, 1000), (10_000, 1000)])
def test_screen_readers_get_whole_sentences_of_an_answer_and_its_end_once(size: int, ticks: int) -> None:
    spoken = speak([ANSWER[at : at + size] for at in range(0, len(ANSWER), size)], ticks=ticks)
    assert " ".join(spoken).replace("。 ", "。") == SPOKEN
    ends = (".", "!", "。", "today", "end", "first")
    assert [text for text in spoken if not text.endswith(ends)] == []


def test_the_start_and_the_length_of_a_long_answer_are_announced() -> None:
    sentence = "This is one sentence of many. "
    spoken = speak([sentence] * 1_000, ticks=1)
    assert " ".join(spoken[:-1]) == " ".join([sentence.strip()] * len(spoken[:-1]))
    assert sum(map(len, spoken)) < 2_100
    assert spoken[-1] == "30,000 characters in total. The end."
    assert speak(["no end " * 20_000], ticks=1)[-1].endswith("140,000 characters in total. The end.")
