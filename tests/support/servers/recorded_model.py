"""Stands for `llama_server.py`: replays what the embedded model once answered, or records what it answers now.

Arguments, standard input and standard output are those of `llama_server.py`. The environment variable
``DIAL_TEST_RECORDED_MODEL`` names the file of the recording. With ``DIAL_TEST_ANSWERS`` the real model is asked, and
the file is written anew; else a request that is not in the file is an error that says so. The model takes the most
likely token each time: the same request has the same answer on the same machine.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDING = Path(os.environ["DIAL_TEST_RECORDED_MODEL"])
SERVER = Path(__file__).parents[3] / "dial_client" / "providers" / "embedded" / "llama_server.py"
VOLATILE = re.compile(rb',"timings":\{[^{}]*\}|,"(?:created|id|model|system_fingerprint)":(?:"[^"]*"|\d+)')
"""Fields of an answer that nobody reads and that are different each time."""


def key_of(path: str, body: bytes) -> str:
    """Return the name of a request: a hash of its path and its content."""
    content = json.dumps(json.loads(body), sort_keys=True) if body else ""
    return hashlib.sha256(f"{path}\n{content}".encode()).hexdigest()[:32]


class Model:
    """The answers by request, and the address of the real model while they are recorded."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._answers: dict[str, dict[str, Any]] = {}
        if address is not None:
            RECORDING.parent.mkdir(exist_ok=True)
            RECORDING.write_bytes(b"")
        else:
            lines = RECORDING.read_text(encoding="utf-8").splitlines() if RECORDING.exists() else []
            self._answers = {answer["request"]: answer for answer in map(json.loads, lines)}

    def answer(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """Return the answer to a request: its status, its type and its content."""
        key = key_of(path, body)
        with self._lock:
            if self.address is None:
                unknown = f"this request is not in {RECORDING.name}; `make answers` asks the model and records it"
                error = {"status": 400, "type": "application/json", "content": json.dumps({"error": unknown})}
                return self._answers.get(key, error)
            connection = http.client.HTTPConnection(self.address, timeout=900)
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            content = VOLATILE.sub(b"", response.read()).decode()
            kind = response.headers.get_content_type()
            answer = {"request": key, "status": response.status, "type": kind, "content": content}
            if key not in self._answers:
                self._answers[key] = answer
                with RECORDING.open("a", encoding="utf-8", newline="\n") as file:
                    file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            return answer


def main() -> None:
    """Serve until standard input ends."""
    real, address = None, None
    if os.environ.get("DIAL_TEST_ANSWERS"):
        command = [sys.executable, "-P", str(SERVER), *sys.argv[1:]]
        real = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert real.stdin is not None
        assert real.stdout is not None
        real.stdin.write(sys.stdin.readline().encode())
        real.stdin.flush()
        address = real.stdout.readline().decode().strip().removeprefix("http://")
    else:
        sys.stdin.readline()
    model = Model(address)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            names = ("authorization", "content-type")
            answer = model.answer(self.path, body, {name: self.headers[name] for name in names if name in self.headers})
            content = answer["content"].encode()
            self.send_response(answer["status"])
            self.send_header("content-type", answer["type"])
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    while sys.stdin.readline():
        pass
    if real is not None:
        real.communicate()
    os._exit(0)


if __name__ == "__main__":
    main()
