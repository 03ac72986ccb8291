"""Approvals on the page: names of servers and tools, quoted server texts, and complete readable arguments."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.inner import FOLDER, ToolCallRequest, format_arguments
from tests.support.browser import Browser, Tab
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message, serve_page, two_servers

NODE = shutil.which("node")
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"path": "notes/日本.md", "content": "# Title\r\n\r\n  indented\n", "flag": True, "none": None, "count": 5},
    {"text": "5", "empty": "", "odd key\n": {}, "tail": "x ", "colon": "a: b", "yes": "yes", "dash": "- x", "bar": "|"},
    {"list": [1, "two", {"deep": ["a\nb", []]}], "unseen": "a\u200bb\u202e", "emoji": "👩\u200d💻", "quote": '"x"'},
]
OUTSIDE = (
    "[...document.querySelectorAll('.request button, .request input')].filter((e) => { "
    "const r = e.getBoundingClientRect(); "
    "return r.left < 0 || r.right > innerWidth || r.top < 0 || r.bottom > innerHeight || "
    "document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2) !== e; }).map((e) => e.textContent)"
)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_arguments_are_formatted_like_in_the_terminal(tmp_path: Path) -> None:
    assert NODE is not None
    for name in ("invisible_characters", "argument_block"):
        text = (FOLDER / f"{name}.js").read_text("utf-8")
        (tmp_path / f"{name}.mjs").write_text(text.replace("_characters.js", "_characters.mjs"), "utf-8")
    script = (
        "import {formatArguments} from './argument_block.mjs'; import fs from 'node:fs';"
        "console.log(JSON.stringify(JSON.parse(fs.readFileSync(0, 'utf8')).map(formatArguments)))"
    )
    (tmp_path / "all.mjs").write_text(script, "utf-8")
    run = subprocess.run(
        [NODE, "all.mjs"],
        cwd=tmp_path,
        input=json.dumps(ARGUMENTS),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert json.loads(run.stdout) == [format_arguments(ToolCallRequest("1", "x", given)) for given in ARGUMENTS]


@pytest.mark.parametrize(("width", "height"), [(320, 568), (375, 667), (1280, 800)])
def test_every_button_of_an_approval_can_be_reached(chromium: Browser, tmp_path: Path, width: int, height: int) -> None:
    arguments = {
        "text": "\n".join(f"line {at}" for at in range(300)),
        "wide": "x" * 5000,
        **{f"n{at}": 1 for at in range(50)},
    }
    with serve_page(
        tmp_path, [{"tool_calls": [{"name": "echo", "arguments": arguments}]}, "Done."], two_servers()
    ) as address:
        tab = open_page(chromium, address)
        tab.resize(width, height, phone=width < 400)
        tab.click("#message")
        tab.type("Go")
        tab.click("#send")
        tab.until("document.querySelector('.request')")
        assert read_text(tab, ".request h2") == "library wants to run echo"
        assert read_text(tab, ".request-question") == "Allow library to run echo?"
        assert "library says: Say it again." in read_text(tab, ".request-claims")
        assert read_text(tab, ".request pre") == format_arguments(ToolCallRequest("1", "echo", arguments))
        tab.until(f"({OUTSIDE}).length === 0")
        assert tab.run("document.documentElement.scrollWidth <= innerWidth") is True
        tab.click("#request-reason")
        tab.type("not that one")
        tab.click(".request-denial button")
        tab.until(DONE)
        assert "not that one" in read_text(tab, ".tool-result pre")
        assert_harmless(tab, address)


def test_an_approval_can_be_permanent(chromium: Browser, tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}
    with serve_page(tmp_path, [call, call, "Done."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Go")
        tab.until("document.querySelector('.request')")
        tab.click(".request-buttons .button:nth-child(3)")
        tab.until(f"{DONE} && document.querySelectorAll('.tool[data-state=done]').length === 2")
        assert_harmless(tab, address)


def wait_for_keys(tab: Tab) -> None:
    """Wait until keys are accepted: some time after the request was shown and after the last key."""
    tab.until("document.querySelector('.request')")
    tab.run("new Promise((kept) => setTimeout(kept, 800))")


def test_changed_arguments_are_reviewed_and_run_as_shown(chromium: Browser, tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "one\r\ntwo"}}]}
    with serve_page(tmp_path, [call, "Done."], two_servers()) as address:
        tab = open_page(chromium, address)
        tab.resize(320, 568, phone=True)
        tab.click("#message")
        tab.type("Go")
        tab.click("#send")
        tab.click(".request [data-shortcut=e]")
        tab.until("document.activeElement.matches('.argument-editor textarea')")
        assert tab.run("document.querySelector('.request [data-shortcut=y]')") is None
        tab.run("document.activeElement.select()")
        tab.type("y<b>\u202e\nn")
        tab.until(f"({OUTSIDE}).length === 0")
        tab.click(".request .primary")
        shown = "text: |\n  y<b>\\u{202e}\n  n"
        tab.until(f"document.querySelector('.request pre')?.textContent === {json.dumps(shown)}")
        assert "1 invisible character is escaped" in read_text(tab, ".request-warning")
        assert "with your changes" in read_text(tab, ".request-question")
        tab.until(f"({OUTSIDE}).length === 0")
        tab.click(".request .primary")
        tab.until(DONE)
        assert "y<b>" in read_text(tab, ".tool-result pre")
        assert_harmless(tab, address)


def test_invalid_changed_arguments_are_reported_and_escape_discards_them(chromium: Browser, tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "big", "arguments": {"size": 3}}]}
    with serve_page(tmp_path, [call, "Done."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Go")
        tab.click(".request [data-shortcut=e]")
        tab.until("document.activeElement.matches('.argument-editor textarea')")
        tab.run("document.activeElement.select()")
        tab.type("one")
        tab.click(".request .primary")
        tab.until("document.querySelector('.request [role=alert]')?.textContent === 'size is not JSON.'")
        tab.run("document.querySelector('.argument-editor textarea').select()")
        tab.type('"one"')
        tab.click(".request .primary")
        tab.until("document.querySelector('.request [role=alert]')?.textContent.startsWith('The arguments are')")
        tab.press("Escape")
        tab.until("document.querySelector('.request pre')?.textContent === 'size: 3'")
        tab.click(".request .primary")
        tab.until(DONE)
        assert "xxx" in read_text(tab, ".tool-result pre")
        assert_harmless(tab, address)


def test_keys_answer_an_approval_but_not_during_or_right_after_typing(chromium: Browser, tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}
    with serve_page(tmp_path, [call, call, "Done."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Go")
        wait_for_keys(tab)
        tab.press("y")
        assert tab.run("document.getElementById('message').value") == "y"
        tab.run("document.getElementById('message').value = ''; document.activeElement.blur()")
        tab.press("y")  # ignored: too soon after the previous key
        assert tab.run("document.querySelectorAll('.request').length") == 1
        wait_for_keys(tab)
        first = tab.run("document.querySelector('.request').dataset.request")
        tab.press("y")
        tab.until(
            f"document.querySelector('.request') && document.querySelector('.request').dataset.request !== '{first}'"
        )
        tab.run("document.activeElement.blur()")
        wait_for_keys(tab)
        tab.press("n")
        tab.until("document.activeElement.id === 'request-reason'")
        tab.type("enough")
        tab.press("Enter")
        tab.until(f"{DONE} && document.querySelectorAll('.tool').length === 2")
        assert "enough" in tab.run("[...document.querySelectorAll('.tool-result pre')].at(-1).textContent")
        assert_harmless(tab, address)
