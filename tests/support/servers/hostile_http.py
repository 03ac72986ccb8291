"""HTTP servers that do wrong whatever a server behind a URL can, all in one: ``http://…/BEHAVIOUR/ERA``.

``python -m tests.support.servers.hostile_http``: says its port in its first line of output; ends with its standard
input. Tools and eras are those of `hostile`; a server is hostile when its tool is called, or from its first answer on
(``greet``).
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.servers.hostile import ANY, FRAME, VERSIONS, deep, line_of, text

LIFETIME = 600.0
MANY = 2_000
"""Messages of a flood: four times the burst that passes."""
MB = 1_000_000
BLOCK = b"x" * MB
EVENTS = "text/event-stream"
JSON = "application/json"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing: that clients leave is what is tested."""


class Handler(BaseHTTPRequestHandler):
    """Behaves, but for what its path asks for."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.take("get", lambda: self.answer(405, "text/plain", b"no"))

    def do_DELETE(self) -> None:
        self.take("delete", lambda: self.answer(200, "text/plain", b""))

    def do_POST(self) -> None:
        self.message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in self.message:
            self.answer(202, "text/plain", b"")
            return
        match self.message["method"], self.era:
            case ("server/discover", "new"):
                discovery = {"supportedVersions": [VERSIONS["new"]], "capabilities": {"tools": {}}}
                self.take("greet", lambda: self.result(discovery))
            case "initialize", "new":
                self.take("greet", lambda: self.error(-32601, "Method not found"))
            case ("initialize", "old"):
                info = {"name": "hostile", "version": "1"}
                discovery = {"protocolVersion": VERSIONS["old"], "capabilities": {"tools": {}}, "serverInfo": info}
                self.take("greet", lambda: self.result(discovery))
            case "tools/list", _:
                tool = {"name": f"hurt_{self.era}", "inputSchema": ANY}
                self.take("list", lambda: self.result({"tools": [tool]}))
            case "tools/call", _:
                self.take("call", lambda: self.result(text("done")))
            case _:
                self.error(-32601, "Method not found")

    @property
    def era(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def elsewhere(self) -> str:
        """Where, under another name of the same machine, everybody is served well."""
        assert isinstance(self.server, Server)
        return f"http://localhost:{self.server.server_port}/well/{self.era}"

    def take(self, moment: str, behave: Callable[[], None]) -> None:
        move = MOVES.get(self.path.split("/")[1])
        if move is not None and moment in move.moments:
            move.does(self)
        else:
            behave()

    def body(self, result: dict[str, Any]) -> bytes:
        framed = FRAME | result if self.era == "new" else result
        return line_of({"id": self.message["id"], "result": framed})

    def result(self, result: dict[str, Any]) -> None:
        session = {"mcp-session-id": "s1"} if self.era == "old" else {}
        self.answer(200, JSON, self.body(result), **session)

    def error(self, code: int, words: str) -> None:
        self.answer(404, JSON, line_of({"id": self.message["id"], "error": {"code": code, "message": words}}))

    def head(self, status: int, kind: str, **headers: str) -> None:
        self.send_response(status)
        if kind:
            self.send_header("content-type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def answer(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self.head(status, kind, content_length=str(len(body)), **headers)
        self.wfile.write(body)

    def pieces(self, kind: str, pieces: Iterator[bytes], **headers: str) -> None:
        """Answer in chunks, as long as there are some and somebody reads."""
        self.head(200, kind, transfer_encoding="chunked", **headers)
        try:
            for piece in pieces:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def notification(self, method: str, params: dict[str, Any]) -> bytes:
        return b"data: " + line_of({"method": method, "params": params}) + b"\n"

    def hang(self) -> None:
        """Say no more until the client has left."""
        self.close_connection = True
        while self.connection.recv(1_000):
            pass


@dataclass(frozen=True)
class Move:
    """A behaviour, and when it is shown."""

    moments: tuple[str, ...]
    does: Callable[[Handler], None]


MOVES: dict[str, Move] = {}


def at(*moments: str) -> Callable[[Callable[[Handler], None]], Callable[[Handler], None]]:
    def keep(does: Callable[[Handler], None]) -> Callable[[Handler], None]:
        MOVES[does.__name__] = Move(moments, does)
        return does

    return keep


def status(code: int, kind: str = "text/plain", body: bytes = b"no", **headers: str) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(code, kind, body, **headers)


for _moment in ("greet", "call"):
    for _code in (401, 403, 404, 429, 500, 503):
        MOVES[f"answers_{_code}_at_{_moment}"] = Move((_moment,), status(_code, retry_after="3600"))
MOVES["shows_a_web_page"] = Move(("greet", "get"), status(200, "text/html", b"<html>Who are you?</html>"))
MOVES["shows_a_web_page_in_the_call"] = Move(("call",), status(200, "text/html", b"<html>Who are you?</html>"))
MOVES["answers_nothing"] = Move(("call",), status(200, JSON, b""))
MOVES["answers_what_is_no_json"] = Move(("call",), status(200, JSON, b"{not json"))
MOVES["answers_with_another_type"] = Move(("call",), status(200, "text/plain", b"{}"))
MOVES["answers_without_a_type"] = Move(("call",), status(200, "", b"{}"))
MOVES["answers_far_too_deep"] = Move(("call",), status(200, JSON, deep(100_000).encode()))
MOVES["accepts_a_request"] = Move(("call",), status(202, JSON, b""))
MOVES["redirects_to_a_file"] = Move(("call",), status(307, location="file:///etc/passwd"))
MOVES["redirects_nowhere"] = Move(("call",), status(307, location="http://"))
MOVES["knows_no_version"] = Move(("list", "call"), status(400, JSON, b'{"error": "unsupported protocol version"}'))
MOVES["encodes_as_nobody_else"] = Move(("call",), status(200, JSON, b"{}", content_encoding="gzip"))


@at("greet", "list", "call")
def redirects_to_another_host(handler: Handler) -> None:
    """Send the client to where everybody is served well."""
    handler.answer(307, "text/plain", b"", location=handler.elsewhere)


@at("call")
def redirects_in_a_circle(handler: Handler) -> None:
    handler.answer(307, "text/plain", b"", location=handler.path)


@at("greet")
def never_answers_the_first_request(handler: Handler) -> None:
    handler.hang()


@at("call")
def never_answers(handler: Handler) -> None:
    handler.hang()


@at("call")
def dribbles_its_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    try:
        while True:
            handler.wfile.write(b"x-a: b\r\n")
            time.sleep(0.05)
    except OSError:
        handler.close_connection = True


@at("call")
def speaks_no_http(handler: Handler) -> None:
    handler.wfile.write(b"220 smtp.example ready\r\n\r\n")
    handler.close_connection = True


@at("call")
def sends_endless_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx: " + BLOCK)
    handler.close_connection = True


@at("call")
def resets_the_connection(handler: Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


@at("call")
def ends_in_the_middle(handler: Handler) -> None:
    handler.head(200, JSON, content_length="1000")
    handler.wfile.write(b'{"jsonrpc": ')
    handler.close_connection = True


@at("call")
def answers_without_end(handler: Handler) -> None:
    handler.pieces(JSON, slowly(b" "))


@at("call")
def answers_beyond_the_limit(handler: Handler) -> None:
    handler.pieces(JSON, iter([BLOCK] * 70))


@at("call")
def sends_a_bomb(handler: Handler) -> None:
    """A quarter of a megabyte on the wire, 256 in memory; the pieces are packed twice."""
    once = gzip.compress(b" " * (256 * MB), 1)
    handler.answer(200, JSON, gzip.compress(once), content_encoding="gzip, gzip")


@at("call")
def answers_under_another_id(handler: Handler) -> None:
    handler.message["id"] = 987_654
    handler.result(text("done"))


@at("call")
def answers_with_a_batch(handler: Handler) -> None:
    handler.answer(200, JSON, b"[" + handler.body(text("done")) + b"]")


@at("greet")
def names_an_impossible_session(handler: Handler) -> None:
    handshake = {"capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}
    versions = {"protocolVersion": VERSIONS["old"], "supportedVersions": [VERSIONS["new"]]}
    handler.answer(200, JSON, handler.body(versions | handshake), mcp_session_id="s\xe9\xff")


@at("call")
def streams_oddly(handler: Handler) -> None:
    """Comments, CRLF, fields nobody knows, and a character cut in two."""
    body = handler.body(text("done \N{SNOWMAN}")).strip().replace(b"\\u2603", "\N{SNOWMAN}".encode())
    event = b": hi\r\n\r\nfoo: bar\r\nretry: x\r\nid: a\0b\r\nevent: message\r\ndata: " + body + b"\r\n\r\n"
    handler.pieces(EVENTS, (event[place : place + 1] for place in range(len(event))))


@at("call")
def streams_in_silence(handler: Handler) -> None:
    handler.head(200, EVENTS, transfer_encoding="chunked")
    handler.hang()


@at("call")
def streams_comments_for_ever(handler: Handler) -> None:
    handler.pieces(EVENTS, slowly(b": still here\n\n"))


@at("call")
def streams_an_event_beyond_the_limit(handler: Handler) -> None:
    handler.pieces(EVENTS, iter([b"data: ", *[BLOCK] * 70, b"\n\n"]))


@at("call")
def streams_what_is_no_message(handler: Handler) -> None:
    handler.pieces(EVENTS, iter([b"data: {not json\n\n"]))


@at("call")
def streams_no_answer(handler: Handler) -> None:
    handler.pieces(EVENTS, iter([b": bye\n\n"]))


@at("call")
def streams_a_flood(handler: Handler) -> None:
    token = handler.message["params"].get("_meta", {}).get("progressToken")
    progress = handler.notification("notifications/progress", {"progressToken": token, "progress": 1})
    logs = handler.notification("notifications/message", {"level": "info", "data": "x"})
    handler.pieces(EVENTS, iter([progress * MANY, logs * MANY, b"data: " + handler.body(text("done")) + b"\n\n"]))


@at("call", "get")
def lets_us_come_back_for_ever(handler: Handler) -> None:
    """End each stream at once, with the promise that it goes on."""
    handler.pieces(EVENTS, iter([b"id: 1\nretry: 0\ndata:\n\n"]))


@at("get")
def names_a_place_elsewhere(handler: Handler) -> None:
    """Over HTTP+SSE: where messages are to be sent is another host."""
    handler.pieces(EVENTS, slowly(f"event: endpoint\ndata: {handler.elsewhere}\n\n".encode()))


@at("get")
def names_no_place(handler: Handler) -> None:
    handler.pieces(EVENTS, slowly(b": wait\n\n"))


@at("get")
def streams_nothing_at_all(handler: Handler) -> None:
    handler.pieces(EVENTS, iter([]))


def slowly(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece
        time.sleep(0.05)


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
