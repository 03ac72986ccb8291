"""Approvals on the page: names of servers and tools, quoted server texts, and complete readable arguments."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.inner import FOLDER, ToolCallRequest
from tests.support.browser import Browser, Tab
from tests.support.program import LONG, python_server
from tests.support.servers.launch import HERE
from tests.support.servers.skills import write_skill
from tests.support.shown_arguments import format_arguments
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message, serve_page, two_servers

NODE = shutil.which("node")
RECORDS = Path(__file__).parents[1] / "support" / "servers" / "records.py"
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
    for name in ("invisible_characters", "exact_json", "argument_block"):
        text = (FOLDER / f"{name}.js").read_text("utf-8")
        (tmp_path / f"{name}.mjs").write_text(re.sub(r"(_characters|_json)\.js", r"\1.mjs", text), "utf-8")
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
        timeout=LONG,
    )
    assert json.loads(run.stdout) == [format_arguments(ToolCallRequest("1", "x", given)) for given in ARGUMENTS]


def test_json_keeps_numbers_that_a_double_does_not_hold(chromium: Browser) -> None:
    tab = chromium.tab()
    code = base64.b64encode((FOLDER / "exact_json.js").read_bytes()).decode()
    tab.run(f"import('data:text/javascript;base64,{code}').then((json) => void Object.assign(window, json))")
    exact = '[9007199254740993,-9223372036854775808,1e400,0.10000000000000000000001,{"a":12345678901234567890.5}]'
    assert tab.run(f"JSON.stringify(parseJson({exact!r}))") == exact
    plain = '[1.0,0.1,-0,1e21,9007199254740992,"9007199254740993 \\u0022 1e400",0.30000000000000004]'
    assert json.loads(tab.run(f"JSON.stringify(parseJson({json.dumps(plain)}))")) == json.loads(plain)
    assert tab.run(f"parseJson({json.dumps(plain)}).every((value) => typeof value !== 'object')")
    shown = '{"price":12.50,"sum":1e2,"zero":-0,"id":9007199254740993,"n":1}'
    assert tab.run(f"JSON.stringify(parseJson({shown!r}, {{keepsForm: true}}))") == shown
    typed = "['9007199254740993', '.1000000000000000000001', '-007.5', '009007199254740993', '1e3'].map(readNumber)"
    assert tab.run(f"JSON.stringify({typed})") == (
        "[9007199254740993,0.1000000000000000000001,-7.5,9007199254740993,1000]"
    )
    assert tab.run("toPlain(parseJson('{\"a\": [9007199254740993]}')).a[0]") == 2**53
    assert tab.run("[parseJson('9007199254740993'), [], null, {}].map(isObject)") == [False, False, False, True]


@pytest.mark.parametrize("number", ["9007199254740993", "-9223372036854775808"])
def test_a_number_that_javascript_rounds_is_shown_and_sent_exactly(
    chromium: Browser, tmp_path: Path, number: str
) -> None:
    call = {"name": "delete_record", "arguments": {"id": int(number), "reason": "old"}}
    with serve_page(tmp_path, [{"tool_calls": [call]}, "Done."], {"records": python_server(RECORDS)}) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Delete it")
        tab.until("document.querySelector('.request')")
        assert read_text(tab, ".request pre") == f"id: {number}\nreason: old"
        tab.click(".request [data-shortcut=e]")
        tab.until("document.activeElement.matches('.argument-editor textarea')")
        tab.click(".argument-editor .field:last-child textarea")
        tab.type("er")
        tab.click(".request .primary")
        tab.until(f"document.querySelector('.request pre')?.textContent === 'id: {number}\\nreason: older'")
        tab.click(".request .primary")
        tab.until(DONE)
        tab.click(".tool summary")
        assert f'{{"id": {number}, "reason": "older"}}' in read_text(tab, ".tool-result pre")
        assert read_text(tab, ".tool pre").splitlines()[1] == f'  "id": {number},'
        assert_harmless(tab, address)


@pytest.mark.parametrize(("width", "height"), [(320, 568), (375, 667), (720, 450), (1280, 800)])
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
        assert read_text(tab, ".more-below") == "More below"
        tab.run("document.querySelector('.request-body').scrollTo({top: 1e6, behavior: 'instant'})")
        tab.until("!document.querySelector('.more-below')")
        beside = tab.open_beside(address)
        beside.until("document.querySelector('#conversations [data-state=waiting]') && document.title[1] === '1'")
        tab.click("#request-reason")
        tab.type("not that one")
        tab.click(".request-denial button")
        tab.until(DONE)
        assert "not that one" in read_text(tab, ".tool-result pre")
        beside.until("!document.querySelector('#conversations [data-state=waiting]') && document.title === 'dial-chat'")
        assert_harmless(beside, address)
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


def test_a_reading_of_a_skill_that_its_server_generates_is_asked_for_by_the_name_of_the_server(
    tmp_path: Path, chromium: Browser
) -> None:
    write_skill(tmp_path / "served", "daily", "42 tickets.", "The report of the day.")
    docs = python_server(HERE / "skills.py", str(tmp_path / "served"), "daily")
    reads = {"tool_calls": [{"name": "read_skill", "arguments": {"name": "docs/daily"}}]}
    with serve_page(tmp_path, [reads, "There are 42."], {"docs": docs}) as address:
        tab = open_page(chromium, address)
        send_message(tab, "How many tickets?")
        assert "the server docs generates this skill" in read_text(tab, ".request-warning")
        assert tab.run("document.querySelector('.request-claims') === null"), "the tool is that of the host"
        tab.click(".request [data-shortcut=y]")
        tab.until("document.querySelector('.turn-foot')")
        assert "42 tickets." in read_text(tab, ".tool-result pre")
