"""An MCP server over stdio that says the value of its variable ``LEAK`` wherever it can."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from typing import Any
from urllib.parse import quote

from raw import Server, notify, send  # type: ignore[import-not-found]  # beside this program

LEAK = os.environ.get("LEAK", "")


class Leaking(Server):  # type: ignore[misc]
    """Says `LEAK` in each kind of message there is; what it was called with decides how a call ends."""

    def initialize(self) -> dict[str, Any]:
        print(f"starting with {LEAK}", file=sys.stderr, flush=True)
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
        info = {"name": f"leaking {LEAK}", "version": "1"}
        result = {"serverInfo": info, "instructions": f"My key is {LEAK}."}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities} | result

    def list(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"how": {"type": "string", "description": f"not {LEAK}"}}}
        return {"tools": [{"name": "leak", "description": f"Uses {LEAK}.", "inputSchema": schema}]}

    def take(self, message: dict[str, Any]) -> None:
        answers: dict[str, Any] = {
            "logging/setLevel": {},
            "resources/list": {"resources": [{"uri": "leak://1", "name": LEAK, "description": LEAK}]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": [{"uri": "leak://1", "text": f"key={LEAK}"}]},
            "prompts/list": {"prompts": [{"name": "leak", "description": LEAK}]},
            "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": LEAK}}]},
        }
        if message.get("method") in answers and "id" in message:
            send({"id": message["id"], "result": answers[message["method"]]})
        else:
            super().take(message)

    def call(self) -> dict[str, Any] | None:
        notify("notifications/message", level="info", data={"name": LEAK, "deep": [LEAK]}, logger="leak")
        token = self.params.get("_meta", {}).get("progressToken")
        notify("notifications/progress", progressToken=token, progress=1, message=f"with {LEAK}")
        encoded = base64.b64encode(f"somebody:{LEAK}".encode()).decode()
        blocks: list[dict[str, Any]] = [
            {"type": "text", "text": f"plain {LEAK}"},
            {"type": "text", "text": json.dumps({"authorization": f"Basic {encoded}", "header": LEAK})},
            {"type": "text", "text": f"https://api.test/v1?key={quote(LEAK, safe='')}"},
            {"type": "resource", "resource": {"uri": "leak://2", "text": LEAK}},
            {"type": "resource_link", "uri": f"https://api.test/?key={LEAK}", "name": LEAK},
            {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"},
        ]
        match self.params["arguments"].get("how"):
            case "error":
                send({"id": self.id, "error": {"code": -32000, "message": f"401 for {LEAK}", "data": {"key": LEAK}}})
                return None
            case "failure":
                return {"content": blocks[:1], "isError": True}
            case "death":
                sys.stderr.write(f"rejected: {LEAK}\n\ngoodbye, {LEAK[:-2]}")
                sys.stderr.flush()
                os._exit(3)
        return {"content": blocks, "structuredContent": {"type": LEAK, "inner": {LEAK: [LEAK]}}}


if __name__ == "__main__":
    Leaking(argparse.Namespace(log=None)).run()
