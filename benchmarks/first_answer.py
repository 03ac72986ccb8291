"""Seconds from an empty home to the first right answer: ``python -m benchmarks.first_answer [--local] [--runs N]``.

Each run has an empty home and an empty folder, and types two commands: ``dial-chat init --yes``, which has to find the
model, and a question that needs a tool. The answer is right if it has the hour of Tokyo. By default a scripted endpoint
listens on a port, and answers at once: the time is that of this program and of the server for the time. With
``--local`` there is no endpoint, and the embedded model answers; its weights are those in the user's cache. Processor
time depends less than the clock on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dial_client.providers.embedded.weights import find_cache_folder

QUESTION = "What time is it in Tokyo?"
_CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_current_time", "arguments": '{"timezone": "Asia/Tokyo"}'},
}


class _Endpoint(BaseHTTPRequestHandler):
    """Lists a model, calls the tool for the time, and tells the time of its result."""

    def do_GET(self) -> None:
        is_list = self.path == "/v1/models"
        self._answer(json.dumps({"data": [{"id": "scripted"}]} if is_list else {}), 200 if is_list else 404)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        messages = request.get("messages")
        if not self.path.endswith("/v1/chat/completions") or not messages:
            self._answer('{"error": {"message": "messages is required"}}', 400 if messages is None else 404)
            return
        last = messages[-1]
        found = re.search(r"T(\d\d:\d\d)", str(last["content"])) if last["role"] == "tool" else None
        delta: dict[str, Any] = {"content": f"It is {found[1]} in Tokyo."} if found else {"tool_calls": [_CALL]}
        choice = {"index": 0, "finish_reason": "stop" if found else "tool_calls"}
        head = {"id": "1", "created": 1, "model": "scripted"}
        if not request.get("stream"):
            self._answer(json.dumps({**head, "choices": [{**choice, "message": {"role": "assistant", **delta}}]}))
            return
        events = [json.dumps({**head, "choices": [{**choice, "delta": {"role": "assistant", **delta}}]}), "[DONE]"]
        self._answer("".join(f"data: {event}\n\n" for event in events), kind="text/event-stream")

    def _answer(self, text: str, status: int = 200, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response_only(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _serve() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"llama.cpp=http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def _measure(servers: str, *init: str) -> tuple[float, float]:
    """Return the seconds of ``init`` and of the question, in an empty home."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name, "home")
        home.mkdir()
        keys = [variable for variable in os.environ if variable.endswith(("_API_KEY", "_BASE_URL"))]
        env = {key: value for key, value in os.environ.items() if key not in (*keys, "OLLAMA_HOST")}
        env |= {"HOME": str(home), "DIAL_LOCAL_SERVERS": servers}
        env |= {f"XDG_{kind}_HOME": str(home / kind) for kind in ("CONFIG", "DATA", "STATE")}
        env["XDG_CACHE_HOME"] = str(find_cache_folder().parents[1] if init else home / "CACHE")
        seconds, answer = [], ""
        for words in (("init", "--yes", "--server", "time", *init), (QUESTION,)):
            begin = time.monotonic()
            ran = subprocess.run(
                [sys.executable, "-m", "dial_client", *words],
                cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            seconds.append(time.monotonic() - begin)
            if ran.returncode:
                raise SystemExit(f"{words[0]}: {ran.stderr}")
            answer = ran.stdout
        hours = re.findall(r"\b(\d\d):\d\d", answer)
        utc = time.gmtime().tm_hour
        if not {f"{(utc + offset) % 24:02}" for offset in (8, 9)} & {*hours}:
            raise SystemExit(f"the answer is wrong: {answer}")
        return seconds[0], seconds[1]


def main() -> None:
    """Measure, and print a row for each run and for the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--local", action="store_true", help="let the embedded model answer")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    runs = []
    for number in range(1, options.runs + 1):
        before = os.times()
        if options.local:
            runs.append(_measure("", "--model", "local"))
        else:
            with _serve() as servers:
                runs.append(_measure(servers))
        init, question = runs[-1]
        after = os.times()  # without times of children on Windows
        busy = after.children_user + after.children_system - before.children_user - before.children_system
        load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
        print(f"run {number}: init {init:.1f} s, question {question:.1f} s, processors {busy:.1f} s{load}")
    together = sorted(sum(run) for run in runs)
    print(f"median {statistics.median(together):.1f} s, from {together[0]:.1f} to {together[-1]:.1f} s")


if __name__ == "__main__":
    main()
