"""Measures how smooth the page is during a long answer, in Chromium: ``python -m benchmarks.page [--only CASE]``.

A scripted model sends most of 10,000 lines at once, and the rest at 200 tokens a second. Frames are counted while the
rest arrives, when the answer is longest. Shares are processor time of the page's main thread, which depends less on
other load of the machine. The last case opens a stored conversation of 2,000 messages.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.browser import WHY_NOT, Browser, Tab, browser
from tests.support.program import write_config
from tests.support.web_page import open_page, send_message, serve_folder

LINES = 10_000
TOKENS_A_SECOND = 200
TOKEN = 4
"""Characters of a token."""
PIECE = 4_000
"""Characters of each piece of the part that is sent at once."""
SECONDS = 10
"""Seconds during which frames are counted."""
MESSAGES = 2_000
OPENINGS = 5

_WORDS = "The records of the third quarter were compared with those of the second"


def _prose(at: int) -> str:
    return "" if at % 2 else f"{_WORDS}, **number {at}** by `number`."


def _code(at: int) -> str:
    if at == 0:
        return "```python"
    return f"    total_{at} = compare(records[{at}], 'second')  # {at}"


def _list(at: int) -> str:
    return f"- item {at}: {_WORDS}, *and* `more`"


def _numbered(at: int) -> str:
    return f"{at + 1}. item: {_WORDS}"


def _nested(at: int) -> str:
    return f"{'  ' if at % 5 else ''}- item {at}: {_WORDS}"


def _table(at: int) -> str:
    if at < 2:
        return ("| row | words | state | note |", "|---|--:|---|---|")[at]
    return f"| {at} | {at * 7:,} | done | the **third** quarter |"


def _paragraph(at: int) -> str:
    return f"{_WORDS}, number {at}."


def _quote(at: int) -> str:
    return f"> {_WORDS}, number {at}."


def _mixed(at: int) -> str:
    section = [
        "", "## What the records say", "", f"There are **three** records and a [page](https://example.test/{at}).", "",
        f"- the first is *short* ({at})", "- the second has a formula, $x_1^2$", "- the third has `code`", "",
        "| record | words |", "|:--|--:|", f"| first | {at} |", "| second | 1,204 |", "",
        "```python", "def read(record):", "    return record.text.strip()  # without its margins", "```", "",
    ]  # fmt: skip
    return section[at % len(section)]


KINDS: Mapping[str, Callable[[int], str]] = {
    "prose": _prose,
    "mixed": _mixed,
    "list": _list,
    "numbered": _numbered,
    "nested": _nested,
    "table": _table,
    "code": _code,
    "quote": _quote,
    "paragraph": _paragraph,
}


@dataclass(frozen=True, slots=True)
class Smoothness:
    """The measurements while the end of an answer arrived."""

    kind: str
    frames: float
    """Frames a second."""
    longest: float
    """Milliseconds of the longest pause between two frames."""
    busy: float
    """The processor time of the page's main thread, as a share of the elapsed time."""
    script: float
    """The share of the elapsed time that scripts took."""
    layout: float
    """The share of the elapsed time that style and layout took."""
    heap: float
    """Megabytes of the JavaScript heap, after a garbage collection."""
    memory: float
    """Megabytes of private memory of the tab's process, after a garbage collection; 0 if it is not reported."""
    elements: int


class _Model(BaseHTTPRequestHandler):
    """A model that replies with a document. The path has the document's name and the number of lines sent at once."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        _, kind, at_once, *_ = self.path.split("/")
        text = "\n".join(KINDS[kind](at) for at in range(LINES)) + "\n"
        first = sum(len(KINDS[kind](at)) + 1 for at in range(int(at_once)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for at in range(0, first, PIECE):
            self._send({"content": text[at : min(at + PIECE, first)]})
        assert isinstance(self.server, _ModelServer)
        self.server.may_go_on.wait()
        started_at = time.perf_counter()
        for number, at in enumerate(range(first, len(text), TOKEN)):
            time.sleep(max(0.0, started_at + number / TOKENS_A_SECOND - time.perf_counter()))
            self._send({"content": text[at : at + TOKEN]})
            if self.server.is_done.is_set():
                break
        self._send({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, delta: dict[str, str], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _ModelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Model)
        self.may_go_on = threading.Event()
        self.is_done = threading.Event()


@contextmanager
def _model() -> Iterator[_ModelServer]:
    server = _ModelServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.is_done.set()
        server.may_go_on.set()
        server.shutdown()
        server.server_close()


@contextmanager
def _page(chromium: Browser, folder: Path, base_url: str) -> Iterator[Tab]:
    model = {"api": "chat", "base_url": base_url, "model": "x", "api_key": "none"}
    write_config(folder, models={"long": model}, defaultModel="long")
    with serve_folder(folder, "--timeout", "3600") as address:
        yield open_page(chromium, address)
        chromium.close_tabs()


_SHOWN = "(document.querySelector('.answer')?.textContent.length ?? 0)"
_COUNT_FRAMES = """
(milliseconds) => new Promise((done) => {
  const times = [];
  const count = (now) => {
    times.push(now);
    if (now - times[0] < milliseconds) requestAnimationFrame(count);
    else done(times);
  };
  requestAnimationFrame(count);
})
"""


def measure_stream(chromium: Browser, kind: str, at_once: int, seconds: float) -> Smoothness:
    """Return how smooth the page is while the end of an answer arrives."""
    with _model() as model, tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{model.server_address[1]}/{kind}/{at_once}/v1"
        with _page(chromium, Path(folder), url) as tab:
            tab.call("Performance.enable", timeDomain="threadTicks")
            send_message(tab, "Write a long answer")
            _settle(tab)
            model.may_go_on.set()
            tab.run("new Promise((done) => setTimeout(done, 1000))")
            before = _metrics(tab)
            times = tab.run(f"({_COUNT_FRAMES})({seconds * 1000})", seconds + 60)
            after = _metrics(tab)
            tab.call("HeapProfiler.collectGarbage")
            heap = _metrics(tab)["JSHeapUsedSize"] / 1e6
            memory = _measure_memory(chromium)
            model.is_done.set()
            elements = int(tab.run("document.querySelectorAll('*').length"))
    took = (times[-1] - times[0]) / 1000
    part = {name: (after[name] - before[name]) / took for name in after}
    return Smoothness(
        kind=kind,
        frames=(len(times) - 1) / took,
        longest=max(later - sooner for sooner, later in pairwise(times)),
        busy=part["TaskDuration"],
        script=part["ScriptDuration"],
        layout=part["LayoutDuration"] + part["RecalcStyleDuration"],
        heap=heap,
        memory=memory,
        elements=elements,
    )


def _settle(tab: Tab) -> None:
    """Wait until the part that was sent at once is shown and completely rendered."""
    tab.until(f"{_SHOWN} > 15_000", 300)
    shown = -1
    while shown != (now := tab.run(_SHOWN)):
        shown = now
        tab.run("new Promise((done) => setTimeout(done, 3000))")


def _measure_memory(chromium: Browser) -> float:
    """Return the private memory of the largest process of a tab, in megabytes."""
    largest = 0
    for process in chromium.call("SystemInfo.getProcessInfo")["processInfo"]:
        rollup = Path(f"/proc/{process['id']}/smaps_rollup")
        if process["type"] == "renderer" and rollup.exists():
            lines = rollup.read_text().splitlines()
            largest = max(largest, sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))
    return largest * 1024 / 1e6


_OPEN = """
(id) => new Promise((done) => {
  const began = performance.now();
  const look = () => {
    const turns = document.querySelectorAll(".turn").length;
    const box = document.querySelector(".turn:last-child .prose")?.getBoundingClientRect();
    if (turns && box?.height) done(performance.now() - began);
    else requestAnimationFrame(look);
  };
  location.hash = `#/c/${id}`;
  requestAnimationFrame(look);
})
"""


def measure_opening(chromium: Browser) -> list[float]:
    """Return the milliseconds that the page needs to open a stored conversation of 2,000 messages, once per opening."""
    replies = "\n".join(_mixed(at) for at in range(19))
    messages = [{"role": ("user", "assistant")[at % 2], "content": replies if at % 2 else f"Number {at}"}
                for at in range(MESSAGES)]  # fmt: skip
    times = []
    with tempfile.TemporaryDirectory() as folder, _page(chromium, Path(folder), "http://127.0.0.1:9/v1") as tab:
        post = (
            "fetch('conversations/import', {method: 'POST', body: JSON.stringify(%s), headers: {Authorization: "
            "'Bearer ' + sessionStorage.getItem('dial-token'), 'Content-Type': 'application/json'}})"
            ".then((response) => response.json())"
        )
        conversation_id = tab.run(post % json.dumps(messages))["id"]
        for _ in range(OPENINGS):
            tab.run("location.hash = '#/'")
            tab.until("!document.querySelector('.turn')")
            times.append(tab.run(f"({_OPEN})({json.dumps(conversation_id)})"))
    return times


def _metrics(tab: Tab) -> dict[str, float]:
    return {metric["name"]: metric["value"] for metric in tab.call("Performance.getMetrics")["metrics"]}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    cases = [*KINDS, "opening"]
    parser.add_argument("--only", action="append", choices=cases, metavar="CASE", help=f"one of {', '.join(cases)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds during which frames are counted")
    options = parser.parse_args()
    if WHY_NOT:
        sys.exit(WHY_NOT)
    remaining_chars = int(options.seconds * 1.5 + 5) * TOKENS_A_SECOND * TOKEN
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, browser(Path(folder)) as chromium:
        for case in options.only or cases:
            load = f"{os.getloadavg()[0]:.1f}"
            if case == "opening":
                times = measure_opening(chromium)
                print(f"opening milliseconds={' '.join(f'{each:.0f}' for each in times)} load={load}", flush=True)
                continue
            width = sum(len(KINDS[case](at)) + 1 for at in range(1_000, 2_000)) / 1_000
            result = asdict(measure_stream(chromium, case, LINES - round(remaining_chars / width), options.seconds))
            values = (
                f"{name}={value:.2f}" if isinstance(value, float) else f"{name}={value}"
                for name, value in result.items()
            )
            print(*values, f"load={load}", flush=True)


if __name__ == "__main__":
    main()
