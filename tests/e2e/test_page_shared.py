"""Two browsers at two processes over one PostgreSQL database: the same conversation, and the same versions."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.browser import Browser
from tests.support.temporary_stores import database_url, needs_postgres
from tests.support.web_page import assert_harmless, open_page, send_message, serve_page

pytestmark = [pytest.mark.anyio, pytest.mark.once]

ANSWERS = "[...document.querySelectorAll('.answer .prose')].map(e => e.textContent).join()"
STORED = "document.querySelector('.turn:last-child .turn-foot [title=\"Answer again\"]')"
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
        assert_harmless(first, first_url)
        assert_harmless(second, second_url)


@needs_postgres
async def test_two_browsers_at_two_processes_see_the_same_versions(chromium: Browser, tmp_path: Path) -> None:
    async with database_url() as url:
        with anyio.fail_after(300):
            await to_thread.run_sync(use_both, chromium, url, tmp_path)
