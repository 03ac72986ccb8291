"""An HTTP server of the standard library alone that answers as servers behind a URL do on their bad days.

``python raw_http.py BEHAVIOUR [PORT [FILE]]``: says its port in its first line of output; ends with its standard input.
The calls it carries out go to FILE, a line each.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

LIFETIME = 120.0
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}} for name in ("cut", "half", "huge", "forget", "echo", "token")
]


class Handler(BaseHTTPRequestHandler):
    """A legacy server with sessions and JSON answers; what a tool is called decides what goes wrong."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class has it so)
        pass

    def do_GET(self) -> None:
        self.answer(405, "text/plain", b"no")

    def do_DELETE(self) -> None:
        self.answer(200, "text/plain", b"")

    def do_POST(self) -> None:
        self.message = message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self.answer(202, "text/plain", b"")
            return
        if message["method"] == "initialize":
            info = {"name": "raw-http", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            self.result(result, session="s1")
        elif message["method"] == "tools/list":
            self.result({"tools": TOOLS})
        elif message["method"] == "tools/call":
            getattr(self, message["params"]["name"])()
        else:
            self.error(-32601, "Method not found")

    def answer(self, status: int, kind: str, body: bytes, session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def result(self, result: Any, session: str = "") -> None:
        body = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        self.answer(200, "application/json", json.dumps(body).encode(), session)

    def error(self, code: int, words: str) -> None:
        body = {"jsonrpc": "2.0", "id": self.message["id"], "error": {"code": code, "message": words}}
        self.answer(200, "application/json", json.dumps(body).encode())

    def echo(self) -> None:
        arguments = json.dumps(self.message["params"].get("arguments"))
        self.result({"content": [{"type": "text", "text": arguments}]})

    def token(self) -> None:
        self.result({"content": [{"type": "text", "text": self.headers.get("authorization", "none")}]})

    def cut(self) -> None:
        self.close_connection = True

    def half(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc": "2.0", ')
        self.wfile.flush()
        self.close_connection = True

    def huge(self) -> None:
        self.result({"content": [{"type": "text", "text": "x" * 5_000_000}]})

    def forget(self) -> None:
        self.answer(404, "text/plain", b"who are you?")


class Status(Handler):
    """Answers everything with one status."""

    status = 500
    kind = "text/plain"
    body = b"no"

    def do_GET(self) -> None:
        self.answer(self.status, self.kind, self.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.answer(self.status, self.kind, self.body)


class LoginPage(Status):
    status = 200
    kind = "text/html; charset=utf-8"
    body = b"<html><form>Who are you?</form></html>"


class Sessions(Handler):
    """Knows only sessions that it has opened itself, and says so by ``status``, with a ``body``."""

    status, body = 404, b"who are you?"

    def do_POST(self) -> None:
        if self.headers.get("mcp-session-id", "") not in ("", f"of {os.getpid()}"):
            self.rfile.read(int(self.headers["content-length"]))
            self.answer(self.status, "application/json", self.body)
            return
        super().do_POST()

    def result(self, result: Any, session: str = "") -> None:
        super().result(result, f"of {os.getpid()}" if session else "")

    def echo(self) -> None:
        with Path(sys.argv[3]).open("a", encoding="utf-8") as calls:
            calls.write("echo\n")
        super().echo()


class OlderSessions(Sessions):
    """Says it as servers made after the older TypeScript examples do."""

    status = 400
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}'


class Moves(Handler):
    """Redirects ``/STATUS?to=URL`` there; answers ``/stream`` in a stream of events; writes down where it was asked."""

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        if len(sys.argv) > 3:
            with Path(sys.argv[3]).open("a", encoding="utf-8") as asked:
                asked.write(f"{parts.path} {self.headers.get('authorization')}\n")
        if parts.path[1:].isdigit():
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(int(parts.path[1:]))
            self.send_header("location", parse_qs(parts.query)["to"][0])
            self.send_header("content-length", "0")
            self.end_headers()
        else:
            super().do_POST()

    def result(self, result: Any, session: str = "") -> None:
        if urlsplit(self.path).path != "/stream":
            super().result(result, session)
            return
        body = json.dumps({"jsonrpc": "2.0", "id": self.message["id"], "result": result})
        self.answer(200, "text/event-stream", f"data: {body}\n\n".encode(), session)


class OldMoves(Moves):
    """Speaks HTTP+SSE, and has messages sent to where a redirect drops them."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\ndata: /302?to=/json\n\n")
        self.wfile.flush()
        time.sleep(LIFETIME)


class SlowGoodbye(Handler):
    """Takes all the time there is to end a session."""

    def do_DELETE(self) -> None:
        time.sleep(LIFETIME)


class Cuts(Handler):
    """Closes the connection without an answer."""

    def do_POST(self) -> None:
        self.close_connection = True


def handler_for(behaviour: str) -> type[Handler]:
    if behaviour.isdigit():
        return type("Fixed", (Status,), {"status": int(behaviour)})
    kinds = (Handler, LoginPage, Sessions, OlderSessions, Moves, OldMoves, SlowGoodbye, Cuts)
    return {kind.__name__: kind for kind in kinds}[behaviour]


def main() -> None:
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = ThreadingHTTPServer(("127.0.0.1", port), handler_for(sys.argv[1]))
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
