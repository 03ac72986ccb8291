"""A raw MCP server on standard input and output, with the standard library only, so that its own cost is minimal.

It supports both protocol generations, like servers of the Python SDK: ``initialize``, and ``server/discover`` of
2026-07-28. All its tools do the same: they wait, and return their ``text``. Calls run concurrently. With ``--effects``
each call adds its text to a file before it returns, as a line. It exits at the end of its input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


class Server:
    """Answers messages; a delayed call is answered in its own thread."""

    def __init__(self, name: str, tools: int, call_delay: float, effects: str = "") -> None:
        self.info = {"name": name, "version": "1"}
        self.tools = [_tool(name, number) for number in range(tools)]
        self.call_delay = call_delay
        # Lines of several processes do not mix: each is written at once.
        self.effects = os.open(effects, os.O_APPEND | os.O_CREAT | os.O_WRONLY) if effects else None
        self.modern = False
        self._writing = threading.Lock()

    def receive(self, line: bytes) -> None:
        """Handle one message from the host."""
        message = json.loads(line)
        params = message.get("params") or {}
        match message["method"]:
            case "tools/call" if self.call_delay:
                threading.Timer(self.call_delay, self.finish, (message["id"], params)).start()
            case "subscriptions/listen":
                about = {"io.modelcontextprotocol/subscriptionId": message["id"]}
                acknowledged = {"_meta": about, "notifications": params["notifications"]}
                self.send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
            case method if "id" in message:
                self.answer(message["id"], self.result(method, params))

    def result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request; None for an unknown method."""
        match method:
            case "tools/call":
                return _result_of(params)
            case "tools/list":
                return {"tools": self.tools} | ({"ttlMs": 0, "cacheScope": "private"} if self.modern else {})
            case "server/discover":
                self.modern = True
                can = {"capabilities": {"tools": {"listChanged": True}}, "ttlMs": 0, "cacheScope": "private"}
                return {"supportedVersions": [MODERN]} | can
            case "initialize":
                return {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": self.info}
            case "ping":
                return {}
        return None

    def finish(self, request_id: Any, params: Mapping[str, Any]) -> None:
        """Finish a call that has waited."""
        result = _result_of(params)
        if self.effects is not None:
            os.write(self.effects, result["content"][0]["text"].encode() + b"\n")
        self.answer(request_id, result)

    def answer(self, request_id: Any, result: dict[str, Any] | None) -> None:
        """Answer one request."""
        if result is None:
            self.send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
            return
        if self.modern:
            result |= {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": self.info}}
        self.send({"id": request_id, "result": result})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _tool(server: str, number: int) -> dict[str, Any]:
    properties = {
        "text": {"type": "string", "description": "What to give back."},
        "count": {"type": "integer", "description": "How many results are wanted at most.", "default": 10},
        "order": {"type": "string", "enum": ["newest", "oldest", "relevance"], "description": "Which come first."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Only those that bear all of these."},
    }
    return {
        "name": f"{server}_tool_{number:03}",
        "description": f"Looks something up in the records of {server}, of kind {number}, and gives it as text.",
        "inputSchema": {"type": "object", "properties": properties, "required": ["text"]},
    }


def _result_of(params: Mapping[str, Any]) -> dict[str, Any]:
    text = params.get("arguments", {}).get("text", "")
    return {"content": [{"type": "text", "text": text}], "isError": False}


def main() -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--tools", type=int, default=1)
    parser.add_argument("--start-delay", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--call-delay", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--effects", default="", metavar="FILE", help="records the texts of delayed calls")
    options = parser.parse_args()
    time.sleep(options.start_delay)
    server = Server(options.name, options.tools, options.call_delay, options.effects)
    for line in sys.stdin.buffer:
        server.receive(line)


if __name__ == "__main__":
    main()
