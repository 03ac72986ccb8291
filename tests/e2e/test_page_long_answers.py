"""Answers of thousands of lines: shown in parts, so that the browser lays out only parts near the viewport."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.web_page import DONE, assert_harmless, open_page, send_message, serve_page

pytestmark = pytest.mark.once

LONG = 350
ITEMS = "- item\n" * 120
TABLE = "|a|b|\n|-|-|\n" + "|1|2|\n" * 120
CODE = "```text\n" + "code\n" * 9 + "```\n"
TEXTS = {
    "prose": "\n\n".join(f"Paragraph {at}, **bold**." for at in range(LONG)),
    "paragraph": "\n".join(
        f"2024. Line {at}, **bold**." if at and at % 50 == 0 else f"Line {at}." for at in range(LONG)
    ),
    "list": "\n".join(f"- [x] item {at}\n  - inner *{at}*" for at in range(LONG)),
    "loose": "\n\n".join(f"- item {at}" for at in range(LONG)),
    "numbered": "\n".join(f"{at + 1}. item {at}" for at in range(LONG)),
    "ones": "\n".join(f"1. item {at}" for at in range(LONG)),
    "table": "| a | b |\n|--:|---|\n" + "\n".join(f"| {at} | **bold** \\| bar |" for at in range(LONG)),
    "code": "```text\n" + "\n".join(f"line {at} {'x' * 90}" for at in range(1_200)) + "\n```",
    "mixed": "\n".join(f"{ITEMS}\nText.\n\n{TABLE}{CODE}\n## Heading {at}\n" for at in range(5)),
    "ended": "- item\n" * 100
    + "1. other\n\n"
    + "|a|\n|-|\n"
    + "|1|\n" * 100
    + "```text\nx\n```\n"
    + "line\n" * 100
    + "# h",
}

STREAM = """
async ({ text, sizes }) => {
  const { importModule } = await import("./assets/bundle.js");
  const { MarkdownView } = await importModule("markdown_view.js");
  const show = async (pieces) => {
    const view = new MarkdownView(document.createElement("div"));
    for (const piece of pieces) {
      view.append(piece);
      await new Promise((done) => setTimeout(() => requestAnimationFrame(done), 0));
    }
    view.finish();
    return view.root;
  };
  const pieces = [];
  for (let at = 0, number = 0; at < text.length; number += 1) {
    pieces.push(text.slice(at, at += sizes[number % sizes.length]));
  }
  const [whole, streamed] = [await show([text]), await show(pieces)];
  return whole.innerHTML === streamed.innerHTML;
}
"""


def test_a_streamed_answer_is_rendered_like_the_complete_answer(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."]) as address:
        tab = open_page(chromium, address)
        differing = []
        for name, text in TEXTS.items():
            step = max(3, len(text) // 90)
            given = {"text": text, "sizes": [1, 2, step * 2, 3, step, step * 3, 5]}
            if not tab.run(f"({STREAM})({json.dumps(given)})"):
                differing.append(name)
        assert differing == []


def test_a_long_answer_has_all_its_items_rows_and_lines(chromium: Browser, tmp_path: Path) -> None:
    names = ("paragraph", "ones", "table", "code")
    text = "\n\n".join(TEXTS[name] for name in names) + "\n\nThe end."
    with serve_page(tmp_path, [{"text": text, "chunk_size": 2_000}]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Write a long answer")
        tab.until(DONE)
        assert tab.run("document.querySelector('.prose').textContent.match(/Line \\d+/g).length") == LONG
        assert tab.run("[...document.querySelectorAll('.prose ol')].map(list => list.start)") == [1, 101, 201, 301]
        assert tab.run("document.querySelectorAll('.prose ol > li').length") == LONG
        tab.run("document.querySelectorAll('.prose ol')[3].scrollIntoView()")
        assert tab.until("parseFloat(getComputedStyle(document.querySelectorAll('.prose ol')[3]).paddingLeft) > 36")
        assert tab.run("document.querySelectorAll('.prose td').length") == 2 * LONG
        code = TEXTS["code"].removeprefix("```text\n").removesuffix("\n```")
        assert tab.run("document.querySelector('.prose pre').textContent") == code
        tab.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        tab.run("document.querySelector('.table-block [aria-label=\\'Copy the table as Markdown\\']').click()")
        assert tab.until("window.copied").count("\n") == LONG + 1
        tab.run("document.querySelector('[aria-label=\\'Copy code\\']').click()")
        assert tab.until("window.copied.startsWith('line 0') && window.copied") == code
        assert_harmless(tab, address)


def test_parts_of_a_long_answer_far_from_the_viewport_are_not_laid_out(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, [{"text": TEXTS["list"], "chunk_size": 2_000}]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Write a long answer")
        tab.until(DONE)
        items = "[...document.querySelectorAll('.prose > .blocks > * > li')]"
        laid_out = "checkVisibility({ contentVisibilityAuto: true })"
        tab.until(f"{items}.at(-1).{laid_out} && {items}.filter(item => !item.{laid_out}).length > {LONG} / 3")
        tab.run(f"{items}[0].scrollIntoView()")
        tab.until(f"{items}[0].{laid_out} && !{items}.at(-1).{laid_out}")
