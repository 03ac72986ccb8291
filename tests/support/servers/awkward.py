"""An MCP server over stdio whose tools do, when they are called, what makes other hosts fall over.

``python awkward.py [KIND]``, with the repository's root in ``PYTHONPATH``; a KIND is one of the classes below.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from typing import Any

from tests.support.servers.raw import LIFETIME, Server, notify, send, text

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
HUGE = "the head" + "x" * 1_999_984 + "the tail"
LONG_NAME = "long_" * 16
ODD_NAME = "a.b/c"
ONE_BY_ONE = ("picture", "structured", "resources", "fails", "three_at_once", "never", "dies", "grow", "itself")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
RECURSIVE = {"type": "object", "properties": {"root": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}}
LINK = {"type": "resource_link", "name": "report", "uri": "file:///report.pdf", "mimeType": "application/pdf"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///notes.txt", "mimeType": "text/plain", "text": "the notes"}}


class Awkward(Server):
    """Each method from `echo` on is a tool, and there are two with names that no provider takes."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        schemas = {"echo": TEXT, "recursive": RECURSIVE}
        self.tools = [
            {"name": name, "description": "It is.", "inputSchema": schemas.get(name, {"type": "object"})}
            for name in ("echo", "recursive", "huge", *ONE_BY_ONE, LONG_NAME, ODD_NAME)
        ]
        self.waiting: list[Any] = []
        self.cancelled: list[Any] = []

    def take(self, message: dict[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        super().take(message)

    def call(self) -> dict[str, Any] | None:
        name = self.params["name"]
        result: dict[str, Any] | None = getattr(self, name)() if hasattr(self, name) else text(f"{name} ran")
        return result

    def echo(self) -> dict[str, Any]:
        return text(self.params["arguments"]["text"])

    def recursive(self) -> dict[str, Any]:
        return text("recursive ran")

    def huge(self) -> dict[str, Any]:
        return text(HUGE)

    def picture(self) -> dict[str, Any]:
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}

    def structured(self) -> dict[str, Any]:
        return {"content": [], "structuredContent": {"answer": 42}}

    def resources(self) -> dict[str, Any]:
        return {"content": [EMBEDDED, LINK]}

    def fails(self) -> dict[str, Any]:
        return text("the disk is full") | {"isError": True}

    def three_at_once(self) -> None:
        """Answer nobody until three are waiting."""
        self.waiting.append(self.id)
        if len(self.waiting) == 3:
            for id_ in self.waiting:
                send({"id": id_, "result": text("all three are here")})

    def never(self) -> None:
        """Say that it has begun, and no more."""
        notify("notifications/progress", progressToken=self.params["_meta"]["progressToken"], progress=1)

    def dies(self) -> None:
        print("out of cheese", file=sys.stderr, flush=True)
        os._exit(7)

    def grow(self) -> dict[str, Any]:
        self.tools.append({"name": "grown", "inputSchema": {"type": "object"}})
        notify("notifications/tools/list_changed")
        return text("there is one more")

    def itself(self) -> dict[str, Any]:
        return text(f"{len(self.cancelled)} cancelled in process {os.getpid()}")


class Other(Server):
    """Has one tool, and is well."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.tools = [{"name": "still_there", "inputSchema": {"type": "object"}}]

    def call(self) -> dict[str, Any]:
        return text("still there")


KINDS = {kind.__name__: kind for kind in (Awkward, Other)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", default="Awkward", choices=KINDS)
    options = parser.parse_args(namespace=argparse.Namespace(log=None))
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    KINDS[options.kind](options).run()


if __name__ == "__main__":
    main()
