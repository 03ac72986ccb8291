"""An MCP server of the standard library alone, over stdio, that is each time it starts what a file says.

``python tool_versions.py FILE LOG``: FILE holds ``{"era": "old" | "new", "version": "1", "tools": […], "dies": false}``
(all of it optional); each start, and what it is asked, goes to LOG, a word a line. It exits on what its era does not
know, as strict servers do.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

LIFETIME = 120.0
TOOL = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}
FRAME = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Server:
    def __init__(self, file: str, log: str) -> None:
        self.config: dict[str, Any] = {"era": "old", "version": "1", "tools": [TOOL]} | json.loads(
            Path(file).read_text()
        )
        self.log = Path(log)

    def note(self, word: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(word + "\n")

    def run(self) -> None:
        self.note("start")
        if self.config.get("dies"):
            print("no license", file=sys.stderr, flush=True)
            sys.exit(3)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "id" in message:
                self.note(message["method"])
                self.answer(message["id"], message["method"], message.get("params", {}))

    def answer(self, key: Any, method: str, params: dict[str, Any]) -> None:
        is_new = self.config["era"] == "new"
        result: dict[str, Any]
        info = {"name": "changing", "version": self.config["version"]}
        if method == "server/discover" and is_new:
            meta = {"io.modelcontextprotocol/serverInfo": info}
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta}
        elif method == "initialize" and not is_new:
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": self.config["tools"]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": json.dumps([params["name"], params["arguments"]])}]}
        elif method == "server/discover":
            self.send({"id": key, "error": {"code": -32601, "message": "Method not found"}})
            return
        else:
            print(f"what is {method}?", file=sys.stderr, flush=True)
            sys.exit(4)
        self.send({"id": key, "result": FRAME | result if is_new else result})

    def send(self, message: dict[str, Any]) -> None:
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    Server(*sys.argv[1:]).run()
