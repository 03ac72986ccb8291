"""Two browsers at two processes with one PostgreSQL database: the same conversation, versions, approvals and apps."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.e2e.test_page_apps import SERVER as APP_SERVER
from tests.e2e.test_page_apps import call
from tests.e2e.test_page_composer import books, write
from tests.support.browser import Browser
from tests.support.program import python_server
from tests.support.temporary_stores import database_url, needs_postgres
from tests.support.web_page import (
    assert_harmless,
    drop_errors_of_ended_turns,
    find_frame,
    open_page,
    send_message,
    serve_page,
)

pytestmark = [pytest.mark.anyio, pytest.mark.once]

ANSWERS = "[...document.querySelectorAll('.answer .prose')].map(e => e.textContent).join()"
STORED = "document.querySelector('.turn:last-child .turn-foot [title=\"Answer again\"]')"
ASK = "document.querySelector('.request')"
FOR_CONVERSATION = ".request .request-buttons .button:nth-child(2)"
VERSION = "document.querySelector('.turn:last-child .turn-foot .version-number')?.textContent"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def use_both(chromium: Browser, url: str, folder: Path) -> None:
    folders = [folder / name for name in ("first", "second")]
    for path in folders:
        path.mkdir()
    answers = [{"replies": [f"From the {path.name}."], "after": "repeat"} for path in folders]
    options = ("--store", url)
    with (
        serve_page(folders[0], answers[0], None, *options) as first_url,
        serve_page(folders[1], answers[1], None, *options) as second_url,
    ):
        first, second = open_page(chromium, first_url), open_page(chromium, second_url)
        send_message(first, "Hello")
        first.until(STORED)
        second.run(f"location.hash = {json.dumps(first.run('location.hash'))}")
        second.until(f"{STORED} && {ANSWERS} === 'From the first.'")
        second.click('.turn:last-child .turn-foot [title="Answer again"]')
        for tab in (second, first):
            tab.until(f"{STORED} && {VERSION} === '2/2' && {ANSWERS} === 'From the second.'")
        first.click('.turn:last-child [title="Previous version of the answer"]')
        second.until(f"{VERSION} === '1/2' && {ANSWERS} === 'From the first.'")
        send_message(second, "And now?")
        first.until(f"{STORED} && {ANSWERS} === 'From the first.,From the second.'")
        for tab, address in ((first, first_url), (second, second_url)):
            drop_errors_of_ended_turns(tab)
            assert_harmless(tab, address)


def approve_in_both(chromium: Browser, url: str, folder: Path) -> None:
    folders = [folder / name for name in ("first", "second")]
    for path in folders:
        path.mkdir()
    options = ("--store", url, "--durable")
    servers = books(cwd=str(folder))  # the same folder, so that grants apply to both
    replies = ["Hello.", write("one"), "Written.", write("two"), "Written again."]
    with (
        serve_page(folders[0], replies, servers, *options) as first_url,
        serve_page(folders[1], [write("three"), "Written there."], servers, *options) as second_url,
    ):
        first, second = open_page(chromium, first_url), open_page(chromium, second_url)
        send_message(first, "Hello")
        first.until(STORED)
        second.run(f"location.hash = {json.dumps(first.run('location.hash'))}")
        second.until(f"{STORED} && {ANSWERS} === 'Hello.'")
        send_message(first, "Write one")
        for tab in (first, second):
            tab.until(f"{ASK} && document.querySelector('.turn:last-child .tool').dataset.state === 'waiting'")
        second.click(".request .primary")
        for tab in (first, second):
            tab.until(f"{STORED} && !{ASK} && {ANSWERS} === 'Hello.,Written.'")
        send_message(first, "Write two")
        for tab in (second, first):
            tab.until(ASK)
        first.click(FOR_CONVERSATION)
        for tab in (first, second):
            tab.until(f"{STORED} && !{ASK} && {ANSWERS} === 'Hello.,Written.,Written again.'")
        send_message(second, "Write three")  # the approval for the conversation applies at both processes
        for tab in (second, first):
            tab.until(f"{STORED} && {ANSWERS}.endsWith(',Written there.')")
            states = "[...document.querySelectorAll('.tool')].map(tool => tool.dataset.state).join()"
            assert tab.run(states) == "done,done,done"
        for tab, address in ((first, first_url), (second, second_url)):
            drop_errors_of_ended_turns(tab)
            assert_harmless(tab, address)


@needs_postgres
async def test_browsers_of_two_processes_show_and_answer_the_same_approvals(chromium: Browser, tmp_path: Path) -> None:
    async with database_url() as url:
        with anyio.fail_after(300):
            await to_thread.run_sync(approve_in_both, chromium, url, tmp_path)


def open_stored_app(chromium: Browser, url: str, folder: Path) -> None:
    folders = [folder / name for name in ("first", "second")]
    for path in folders:
        path.mkdir()
    options = ("--store", url)
    servers = {"apps": python_server(APP_SERVER, autoApprove=["show_counter"])}
    with serve_page(folders[0], [call("show_counter", start=3), "Counted."], servers, *options) as first_url:
        first = open_page(chromium, first_url)
        send_message(first, "Count")
        first.until(STORED)
        find_frame(first, "find('count').textContent === '3'")
        place = first.run("location.hash")
    with serve_page(folders[1], [], servers, *options) as second_url:
        second = open_page(chromium, second_url)
        second.run(f"location.hash = {json.dumps(place)}")
        frame = find_frame(second, "find('count').textContent === '3'")
        frame.run("find('more').click()")
        second.click(".request .primary")
        frame.until("find('count').textContent === '1'")  # the server of the second process has a new counter
        assert_harmless(second, second_url)


@needs_postgres
async def test_a_stored_app_is_shown_after_the_end_of_the_process_that_opened_it(
    chromium: Browser, tmp_path: Path
) -> None:
    async with database_url() as url:
        with anyio.fail_after(300):
            await to_thread.run_sync(open_stored_app, chromium, url, tmp_path)


@needs_postgres
async def test_browsers_of_two_processes_show_the_same_versions(chromium: Browser, tmp_path: Path) -> None:
    async with database_url() as url:
        with anyio.fail_after(300):
            await to_thread.run_sync(use_both, chromium, url, tmp_path)
