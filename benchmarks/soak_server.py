"""A server of the soak, with the standard library only: ``python soak_server.py NAME stdio|http [PORT]``.

Its tools are ``add_NAME``, ``hang_NAME`` (never answers), ``change_NAME`` (adds or removes one tool), ``pid_NAME`` and
``flood_NAME`` (sends far more than anybody wants). Over HTTP, its first line of output is its port. It exits at the end
of its input.
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
FLOOD_MESSAGES, FLOOD_CHARS = 300, 5_000_000
"""The notifications of each kind and the lines on standard error of one flood, and the characters of its result."""
Send = Callable[[dict[str, Any]], None]


class Service:
    """Handles messages of both transports; ``send`` sends a message to the client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_extra = False
        self.listeners: dict[Any, Send] = {}

    def handle(self, message: dict[str, Any], send: Send) -> None:
        """Handle a message, and answer it."""
        params, request_id = message.get("params") or {}, message.get("id")
        match message["method"]:
            case "server/discover":
                send(_response(request_id, FRAME | {"supportedVersions": [MODERN], "capabilities": _capabilities()}))
            case "initialize":
                info = {"name": self.name, "version": "1"}
                send(
                    _response(
                        request_id, {"protocolVersion": LEGACY, "capabilities": _capabilities(), "serverInfo": info}
                    )
                )
            case "tools/list":
                send(_response(request_id, FRAME | {"tools": self.tools()}))
            case "tools/call":
                self.call(request_id, params, send)
            case "subscriptions/listen":
                meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": request_id}}
                self.listeners[request_id] = lambda notification: send(notification | {"params": meta})
                acknowledged = {"notifications": params["notifications"]} | meta
                send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
            case "notifications/cancelled":
                self.listeners.pop(params.get("requestId"), None)
            case _ if request_id is not None:
                send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})

    def tools(self) -> list[dict[str, Any]]:
        """Return the current tools."""
        names = ("add", "hang", "change", "pid", "flood", *(("extra",) if self.has_extra else ()))
        return [{"name": f"{name}_{self.name}", "inputSchema": {"type": "object"}} for name in names]

    def call(self, request_id: Any, params: dict[str, Any], send: Send) -> None:
        """Answer a call, unless it calls ``hang_NAME``."""
        arguments = params.get("arguments") or {}
        match params["name"].partition("_")[0]:
            case "hang":
                return
            case "add":
                answer: Any = arguments["a"] + arguments["b"]
            case "pid":
                answer = os.getpid()
            case "change":
                self.has_extra, answer = not self.has_extra, "changed"
                for notify in tuple(self.listeners.values()) or (send,):
                    notify({"method": CHANGED})
            case "flood":
                flood(params, send)
                answer = "y" * FLOOD_CHARS
            case name:
                answer = name
        send(_response(request_id, FRAME | {"content": [{"type": "text", "text": str(answer)}]}))


def flood(params: dict[str, Any], send: Send) -> None:
    """Send what a hostile server sends: logs, progress that nobody wants, changed lists, and a large standard error."""
    token = (params.get("_meta") or {}).get("progressToken", "nobody")
    for number in range(FLOOD_MESSAGES):
        send({"method": "notifications/message", "params": {"level": "error", "data": "x" * 1_000}})
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        send({"method": CHANGED})
        print("z" * 1_000, file=sys.stderr)


def _capabilities() -> dict[str, Any]:
    return {"tools": {"listChanged": True}}


def _response(request_id: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"id": request_id, "result": result}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"


def serve_stdio(service: Service) -> None:
    """Serve until the input ends."""

    def send(message: dict[str, Any]) -> None:
        sys.stdout.buffer.write(_line(message))
        sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        service.handle(json.loads(line), send)


class Handler(BaseHTTPRequestHandler):
    """Answers each request with its own stream. Only the process that opened a session knows it."""

    protocol_version = "HTTP/1.1"
    service: Service

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Refuse the request: this server offers no GET stream."""
        self._empty(405)

    def do_DELETE(self) -> None:
        """End a session."""
        self._empty(200)

    def do_POST(self) -> None:
        """Handle a message."""
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
            self.service.handle(message, self._send)
            if message["method"] == "subscriptions/listen" or message.get("params", {}).get("name", "")[:5] == "hang_":
                self.close_connection = True
                self.connection.recv(1)  # returns when the client disconnects
                self.service.listeners.pop(message["id"], None)
                return
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _send(self, message: dict[str, Any]) -> None:
        event = b"data: " + _line(message) + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def _empty(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


class HttpServer(ThreadingHTTPServer):
    """An HTTP server with a thread for each client."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore a client that has disconnected."""


def serve_http(service: Service, port: int) -> None:
    """Serve until the input ends."""
    Handler.service = service
    server = HttpServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Serve with the options of the command line."""
    name, transport, *port = sys.argv[1:]
    if transport == "stdio":
        serve_stdio(Service(name))
    else:
        serve_http(Service(name), int(port[0]) if port else 0)


if __name__ == "__main__":
    main()
