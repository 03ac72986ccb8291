"""The servers of the soak: ``python soak_server.py NAME stdio|http [PORT]``, the standard library alone, both eras.

Its tools are ``add_NAME``, ``hang_NAME`` (never answers), ``change_NAME`` (one tool more, or one less, from now on) and
``pid_NAME``. Over HTTP its first line of output is its port. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
FRAME = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
CHANGED = "notifications/tools/list_changed"
Say = Callable[[dict[str, Any]], None]


class Service:
    """What is the same over both transports; ``say`` sends a message to the client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_extra = False
        self.listeners: dict[Any, Say] = {}

    def hear(self, message: dict[str, Any], say: Say) -> None:
        """Take a message, and answer it."""
        params, number = message.get("params") or {}, message.get("id")
        match message["method"]:
            case "server/discover":
                say(_answer(number, FRAME | {"supportedVersions": [MODERN], "capabilities": _can()}))
            case "initialize":
                info = {"name": self.name, "version": "1"}
                say(_answer(number, {"protocolVersion": LEGACY, "capabilities": _can(), "serverInfo": info}))
            case "tools/list":
                say(_answer(number, FRAME | {"tools": self.tools()}))
            case "tools/call":
                self.call(number, params, say)
            case "subscriptions/listen":
                about = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
                self.listeners[number] = lambda said: say(said | {"params": about})
                acknowledged = {"notifications": params["notifications"]} | about
                say({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
            case "notifications/cancelled":
                self.listeners.pop(params.get("requestId"), None)
            case _ if number is not None:
                say({"id": number, "error": {"code": -32601, "message": "Method not found"}})

    def tools(self) -> list[dict[str, Any]]:
        """Give what it offers now."""
        names = ("add", "hang", "change", "pid", *(("extra",) if self.has_extra else ()))
        return [{"name": f"{name}_{self.name}", "inputSchema": {"type": "object"}} for name in names]

    def call(self, number: Any, params: dict[str, Any], say: Say) -> None:
        """Answer a call, or do not."""
        given = params.get("arguments") or {}
        match params["name"].partition("_")[0]:
            case "hang":
                return
            case "add":
                said = given["a"] + given["b"]
            case "pid":
                said = os.getpid()
            case "change":
                self.has_extra, said = not self.has_extra, "changed"
                for tell in tuple(self.listeners.values()) or (say,):
                    tell({"method": CHANGED})
            case name:
                said = name
        say(_answer(number, FRAME | {"content": [{"type": "text", "text": str(said)}]}))


def _can() -> dict[str, Any]:
    return {"tools": {"listChanged": True}}


def _answer(number: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, "result": result}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"


def serve_stdio(service: Service) -> None:
    """Serve until the input ends."""

    def say(message: dict[str, Any]) -> None:
        sys.stdout.buffer.write(_line(message))
        sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        service.hear(json.loads(line), say)


class Handler(BaseHTTPRequestHandler):
    """Answers each request with a stream of its own; a session is known to the process that opened it."""

    protocol_version = "HTTP/1.1"
    service: Service

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Have no stream of our own."""
        self._empty(405)

    def do_DELETE(self) -> None:
        """End a session."""
        self._empty(200)

    def do_POST(self) -> None:
        """Take a message."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers.get("mcp-session-id")
        if session is not None and session != str(os.getpid()):
            self._empty(404)
        elif "id" not in message:
            self._empty(202)
        else:
            self._stream(message)

    def _stream(self, message: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        if message["method"] == "initialize":
            self.send_header("mcp-session-id", str(os.getpid()))
        self.end_headers()
        try:
            self.service.hear(message, self._say)
            if message["method"] == "subscriptions/listen" or message.get("params", {}).get("name", "")[:5] == "hang_":
                self.close_connection = True
                self.connection.recv(1)  # until the client has left
                self.service.listeners.pop(message["id"], None)
                return
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _say(self, message: dict[str, Any]) -> None:
        event = b"data: " + _line(message) + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def _empty(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


class Web(ThreadingHTTPServer):
    """Has a thread for each client."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that has left."""


def serve_http(service: Service, port: int) -> None:
    """Serve until the input ends."""
    Handler.service = service
    server = Web(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Serve as the command line says."""
    name, transport, *port = sys.argv[1:]
    if transport == "stdio":
        serve_stdio(Service(name))
    else:
        serve_http(Service(name), int(port[0]) if port else 0)


if __name__ == "__main__":
    main()
