"""An MCP server of the standard library alone, over stdio, in either era, whose moves can be replaced by worse ones.

Its eras are ``old`` (2025-11-25, with a handshake) and ``new`` (2026-07-28, without). `hostile_stdio` runs it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIFETIME = 120.0
ANY = {"type": "object"}
FRAME = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
VERSIONS = {"old": "2025-11-25", "new": "2026-07-28"}


class Hostile:
    """Behaves, but for the moments a behaviour takes over: each of them is a method's name."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.tool = {"name": f"hurt_{era}", "description": "It hurts.", "inputSchema": ANY}
        self.id: Any = None
        self.params: dict[str, Any] = {}
        self.calls = 0

    def start(self) -> None:
        """Come up."""

    def greet(self) -> Any:
        """Return the answer to the first request of the era."""
        if self.era == "new":
            return FRAME | {"supportedVersions": [VERSIONS["new"]], "capabilities": {"tools": {"listChanged": True}}}
        info = {"name": "hostile", "version": "1"}
        return {"protocolVersion": VERSIONS["old"], "capabilities": {"tools": {}}, "serverInfo": info}

    def list(self) -> Any:
        """Return the answer to ``tools/list``."""
        return {"tools": [self.tool]}

    def call(self) -> Any:
        """Return the answer to ``tools/call``."""
        return text("done")

    def ended(self) -> None:
        """Take the end of the input."""

    def run(self) -> None:
        self.start()
        for line in sys.stdin.buffer:
            self.take(json.loads(line))
        self.ended()

    def take(self, message: dict[str, Any]) -> None:
        if "id" not in message or "method" not in message:
            return
        self.id, self.params = message["id"], message.get("params", {})
        match message["method"], self.era:
            case ("server/discover", "new") | ("initialize", "old"):
                self.answer(self.greet())
            case "initialize", _ if "greet" in vars(self):
                self.answer(self.greet())
            case "subscriptions/listen", "new":
                self.acknowledge()
            case "tools/list", _:
                self.answer(self.list())
            case "tools/call", _:
                self.calls += 1
                self.answer(self.call())
            case _:
                self.send({"id": self.id, "error": {"code": -32601, "message": "Method not found"}})

    def answer(self, result: Any) -> None:
        if result is not None:
            framed = FRAME | result if isinstance(result, dict) and self.era == "new" else result
            self.send({"id": self.id, "result": framed})

    def acknowledge(self) -> None:
        self.subscription = {"_meta": {"io.modelcontextprotocol/subscriptionId": self.id}}
        params = {"notifications": self.params["notifications"]} | self.subscription
        self.send({"method": "notifications/subscriptions/acknowledged", "params": params})

    def notification(self, method: str, params: dict[str, Any] | None = None) -> bytes:
        return line_of({"method": method, "params": params or getattr(self, "subscription", {})})

    def progress(self, **params: Any) -> bytes:
        token = self.params.get("_meta", {}).get("progressToken")
        return self.notification("notifications/progress", {"progressToken": token, "progress": 1} | params)

    def send(self, message: dict[str, Any]) -> None:
        write(line_of(message))

    def result_line(self, result: dict[str, Any]) -> bytes:
        return line_of({"id": self.id, "result": FRAME | result if self.era == "new" else result})


class Well(Hostile):
    """The good server beside."""

    def __init__(self, era: str) -> None:
        super().__init__(era)
        self.tool = {"name": "add", "description": "Adds.", "inputSchema": ANY}

    def call(self) -> Any:
        return text(str(self.params["arguments"]["a"] + self.params["arguments"]["b"]))


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]} | more


def line_of(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Move:
    """A behaviour: which method it takes the place of, and what it does there."""

    moment: str
    does: Callable[[Hostile], Any]


MOVES: dict[str, Move] = {}


def at(moment: str) -> Callable[[Callable[[Hostile], Any]], Callable[[Hostile], Any]]:
    def keep(does: Callable[[Hostile], Any]) -> Callable[[Hostile], Any]:
        MOVES[does.__name__] = Move(moment, does)
        return does

    return keep


def die(_: Hostile, last_words: str = "out of cheese") -> None:
    say(last_words)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIFETIME)


def live_on() -> None:
    time.sleep(LIFETIME)


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def raw_result(server: Hostile, inner: str) -> None:
    """Answer with members of the result as they are written."""
    frame = '"resultType":"complete",' if server.era == "new" else ""
    write(f'{{"jsonrpc":"2.0","id":{server.id},"result":{{{frame}{inner}}}}}\n'.encode())
