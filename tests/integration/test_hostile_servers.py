"""Hostile servers, one row for each behaviour: other servers work, the turn ends, and the error names the server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, Message, StopReason
from dial_client.testing import ScriptedProvider
from tests.inner import notifications, server_process
from tests.support.hostile_cases import ADD, ERAS, ROOT, ROWS, URL_ROWS, Row, entry, seen_of, url_entry
from tests.support.program import LONG, dial_chat, write_config
from tests.support.servers import hostile_calls, hostile_http, hostile_starts  # noqa: F401 (two of them fill MOVES)
from tests.support.servers.hostile import MOVES

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="there the SDK runs the process")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "GRACE", 0.2)
    monkeypatch.setattr(notifications, "MAX_ITEMS", 1_000)


@pytest.fixture(scope="module")
def urls() -> Iterator[str]:
    argv = [sys.executable, "-S", "-W", "ignore", "-m", "tests.support.servers.hostile_http"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@on_posix
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.does)
@pytest.mark.anyio
async def test_a_hostile_stdio_server_is_contained_and_named(row: Row) -> None:
    await check_contained_and_named(row, {era: entry(row.does, era, **row.settings) for era in ERAS})


@on_posix
@pytest.mark.parametrize("row", URL_ROWS, ids=lambda row: row.does)
@pytest.mark.parametrize(
    "anyio_backend", ["asyncio"]
)  # trio warns about each stream that the SDK does not read to its end
@pytest.mark.anyio
async def test_a_hostile_http_server_is_contained_and_named(row: Row, urls: str, anyio_backend: str) -> None:
    await check_contained_and_named(row, {era: url_entry(urls, row, era) for era in ERAS})


async def check_contained_and_named(row: Row, bad: Mapping[str, Any]) -> None:
    hurts = [{"name": f"hurt_{era}", "arguments": {}} for era in bad]
    replies = [{"tool_calls": [*hurts, ADD]}, {"tool_calls": [ADD]}, "Done."]
    with anyio.fail_after(LONG):
        async with DialClient(ScriptedProvider(replies), servers={**bad, "good": entry("well", "old")}) as dial:
            turn = await dial.run([Message.user("Go on.")])
            servers, notes = dial.servers, (*dial.notes, *turn.notes)
    assert (turn.text, turn.stop_reason) == ("Done.", StopReason.ANSWERED)
    *hurt, first, second = (record.result for record in turn.tool_calls)
    assert (first.content, second.content, servers["good"].restarts) == ("3", "3", 0)
    for name, result in zip(bad, hurt, strict=True):
        assert result.success is row.works, result.content
        assert row.text in seen_of(servers[name], notes, result)


@on_posix
@pytest.mark.parametrize(
    ("does", "error"),
    [
        (
            "exits_at_once",
            "server 'bad' is not available: the server ended with exit code 3; it last said: the database",
        ),
        ("dies_in_the_call", "server 'bad' died and is restarted: the server ended by SIGTERM"),
        ("never_answers", "→ bad.hurt_old()"),
        ("lists_single_bad_tools", "server 'bad': a malformed tool is left out: text"),
        ("floods_with_pings", "server 'bad': it sends a flood of pings"),
    ],
)
def test_the_program_names_the_hostile_server_on_standard_error(tmp_path: Path, does: str, error: str) -> None:
    bad = entry(does, "old", autoApprove=["*"], toolTimeout=LONG if "flood" in does else 0.3)
    hurt = {"name": "hurt_old", "arguments": {}}
    write_config(
        tmp_path, {"bad": bad, "good": entry("well", "old", autoApprove=["*"])}, [{"tool_calls": [hurt, ADD]}, "Done."]
    )
    ran = dial_chat(tmp_path, "--no-save", "Go on.")
    assert (ran.returncode, ran.stdout) == (0, "Done.\n")
    assert "✓" in ran.stderr, "the good server's sum"
    assert error in ran.stderr


HUGE = """
import pathlib, re, resource, sys
import anyio
from dial_client import DialClient
from tests.support.hostile_cases import Row, entry, url_entry

STDIO = ["writes_a_line_beyond_the_limit", "writes_a_batch_of_millions", "floods_its_standard_error"]
URLS = ["answers_beyond_the_limit", "sends_a_bomb", "streams_an_event_beyond_the_limit"]

async def main():
    rows = [entry(does, "new") for does in STDIO] + [url_entry(sys.argv[1], Row(does), "new") for does in URLS]
    for row in rows:
        async with DialClient(servers={"bad": row}) as dial:
            await dial.call("hurt_new", {})
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts at the peak of the parent process
        print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) // 1024)
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024**2 if sys.platform == "darwin" else 1024))

anyio.run(main)
"""


@on_posix
def test_memory_is_bounded_with_oversized_messages(urls: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", HUGE, urls]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * LONG, check=True)
    assert int(ran.stdout) < 8 * 64, "megabytes, at the peak: some copies of the longest message"


def test_there_is_a_row_for_each_behaviour() -> None:
    assert sorted(row.does for row in ROWS) == sorted(MOVES)
    assert sorted(row.does for row in URL_ROWS) == sorted(hostile_http.MOVES)
