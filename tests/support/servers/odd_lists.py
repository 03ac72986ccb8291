"""A raw server with one good resource, template and prompt among some that the protocol does not allow, over stdio.

``python odd_lists.py legacy|modern``: on 2026-07-28 it leaves out whatever has a default.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

GOOD: dict[str, dict[str, Any]] = {
    "resources/list": {
        "resources": [7, {"name": "no address"}, {"uri": "a://b", "name": "good"}, {"uri": 1, "name": "x"}]
    },
    "resources/templates/list": {"resourceTemplates": [{"name": "none"}, {"uriTemplate": "a://{b}", "name": "good"}]},
    "prompts/list": {"prompts": [{"title": "nameless"}, {"name": "good"}, None, {"name": "x", "arguments": "none"}]},
    "resources/read": {"contents": [{"uri": "a://b", "text": "Read."}]},
    "tools/list": {"tools": []},
}
CAPABILITIES: dict[str, dict[str, bool]] = {"resources": {}, "prompts": {}}
INFO = {"name": "odd", "version": "1"}


def answer(method: str, *, modern: bool) -> dict[str, Any]:
    if method == "initialize" and not modern:
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO}}
    if method == "server/discover" and modern:
        return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "serverInfo": INFO}}
    if method in GOOD:
        return {"result": GOOD[method]}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    end = threading.Timer(120.0, os._exit, [9])
    end.daemon = True
    end.start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"]}
            print(json.dumps(reply | answer(message["method"], modern=sys.argv[1] == "modern")), flush=True)


if __name__ == "__main__":
    main()
