"""An MCP server that does what makes hosts fall over, on stdio at 2025-11-25: ``python servers.py KIND [--log FILE]``.

A KIND is one of the classes from `Awkward` on. FILE gets a line of JSON for each start, call and cancellation. It needs
the standard library only, and no other module of this package, so that it starts fast: ``python -I -S servers.py …``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import Any

LIFETIME = 200.0
"""The seconds after which a server that nobody has closed ends by itself."""
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
HUGE = "the head" + "x" * 1_999_984 + "the tail"
LONG_NAME = "long_" * 16
ODD_NAME = "a.b/c"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
RECURSIVE = {"type": "object", "properties": {"root": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}}
LINK = {
    "type": "resource_link",
    "name": "report",
    "uri": "https://docs.example/report.pdf",
    "mimeType": "application/pdf",
}
EMBEDDED = {"type": "resource", "resource": {"uri": "memo:///notes.txt", "mimeType": "text/plain", "text": "the notes"}}
QUESTION = {"type": "object", "properties": {"yes": {"type": "boolean"}}}

Result = dict[str, Any] | None
"""The result of a call; None if it comes later, or never."""


def send(message: dict[str, Any]) -> None:
    """Write a message."""
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(words: str, **more: Any) -> dict[str, Any]:
    """Return a result of text."""
    return {"content": [{"type": "text", "text": words}], **more}


def tool(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the definition of a tool."""
    return {"name": name, "description": "It is.", "inputSchema": schema or {"type": "object"}}


class Server:
    """A server whose tools are named by `tools`; a method of a tool's name is its work."""

    tools: tuple[dict[str, Any], ...] = ()

    def __init__(self, log: str) -> None:
        self.id: Any = None
        self.params: dict[str, Any] = {}
        self.cancelled: list[Any] = []
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY) if log else None
        self.record(event="start", pid=os.getpid())

    def record(self, **entry: Any) -> None:
        """Write a line into the log."""
        if self._log is not None:
            os.write(self._log, json.dumps(entry).encode() + b"\n")

    def run(self) -> None:
        """Serve until the input ends."""
        for line in sys.stdin.buffer:
            self.take(json.loads(line))

    def take(self, message: dict[str, Any]) -> None:
        """Handle a message."""
        method, self.params = message.get("method"), message.get("params") or {}
        if method == "notifications/cancelled":
            self.cancelled.append(self.params["requestId"])
            self.record(event="cancelled")
        if method is None or "id" not in message:
            return
        self.id = message["id"]
        known = {"initialize": self.initialize, "tools/list": self.list, "tools/call": self.call, "ping": dict}
        if method not in known:
            send({"id": self.id, "error": {"code": -32601, "message": "Method not found"}})
        elif (result := known[method]()) is not None:
            send({"id": self.id, "result": result})

    def initialize(self) -> Result:
        """Return the capabilities."""
        info = {"name": type(self).__name__, "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}

    def list(self) -> Result:
        """Return the tools."""
        return {"tools": list(self.tools)}

    def call(self) -> Result:
        """Call a tool."""
        name = self.params["name"]
        self.record(event="call", tool=name)
        result: Result = getattr(self, name)() if hasattr(self, name) else text(f"{name} ran")
        return result


class Awkward(Server):
    """Each method from `echo` on is a tool."""

    tools = (
        tool("echo", TEXT),
        *map(tool, ("huge", "picture", "structured", "resources", "fails", "three_at_once", "never", "dies", "grow")),
        tool("itself"),
    )

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.waiting: list[Any] = []

    def echo(self) -> Result:
        """Return the text."""
        arguments = self.params.get("arguments") or {}
        return text(arguments["text"]) if "text" in arguments else text("the argument 'text' is missing", isError=True)

    def huge(self) -> Result:
        """Return 2,000,000 characters."""
        return text(HUGE)

    def picture(self) -> Result:
        """Return an image."""
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}

    def structured(self) -> Result:
        """Return structured content without text."""
        return {"content": [], "structuredContent": {"answer": 42}}

    def resources(self) -> Result:
        """Return a resource and a link."""
        return {"content": [EMBEDDED, LINK]}

    def fails(self) -> Result:
        """Fail."""
        return text("the disk is full", isError=True)

    def three_at_once(self) -> Result:
        """Answer nobody until three are waiting."""
        self.waiting.append(self.id)
        if len(self.waiting) == 3:
            for waiting in self.waiting:
                send({"id": waiting, "result": text("all three are here")})
        return None

    def never(self) -> Result:
        """Say that it has begun, and no more."""
        if token := self.params.get("_meta", {}).get("progressToken"):
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        return None

    def dies(self) -> Result:
        """End the process, after a last word."""
        print("out of cheese", file=sys.stderr, flush=True)
        os._exit(7)

    def grow(self) -> Result:
        """Offer one more tool."""
        self.tools = (*self.tools, tool("grown"))
        send({"method": "notifications/tools/list_changed"})
        return text("there is one more")

    def itself(self) -> Result:
        """Return how many calls were cancelled, and the process."""
        return text(f"{len(self.cancelled)} cancelled in process {os.getpid()}")


class Other(Server):
    """Has one tool, and is well."""

    tools = (tool("still_there"),)

    def still_there(self) -> Result:
        """Return that it is."""
        return text("still there")


class Mute(Server):
    """Never answers ``initialize``."""

    def initialize(self) -> Result:
        """Say that it thinks."""
        print("still thinking", file=sys.stderr, flush=True)
        return None


class Chatty(Awkward):
    """Writes words, brackets and JSON that is no message to its standard output."""

    def take(self, message: dict[str, Any]) -> None:
        """Write, and handle the message."""
        sys.stdout.buffer.write(b'Welcome!\n\n[INFO] {not json\n{"level": "info"}\n[1, 2]\n[\n')
        super().take(message)


class Recursive(Server):
    """Has a tool whose schema refers to itself."""

    tools = (tool("recursive", RECURSIVE),)


class OddNames(Server):
    """Has tools with names that no provider takes."""

    tools = (tool(LONG_NAME), tool(ODD_NAME))


class Who(Server):
    """Has a tool whose name others have too; it returns its process."""

    tools = (tool("who"),)

    def who(self) -> Result:
        """Return the process."""
        return text(f"process {os.getpid()}")


class Asks(Server):
    """Asks the user a question during a call."""

    tools = (tool("asks"),)
    waiting: Any = None

    def take(self, message: dict[str, Any]) -> None:
        """Take the answer to the question, too."""
        if "method" in message:
            super().take(message)
        elif message.get("id") == "question":
            answer = message.get("result", {}).get("action") or message["error"]["message"]
            send({"id": self.waiting, "result": text(f"the answer was: {answer}", isError="error" in message)})

    def asks(self) -> Result:
        """Ask."""
        self.waiting = self.id
        question = {"message": "Really?", "requestedSchema": QUESTION}
        send({"id": "question", "method": "elicitation/create", "params": question})
        return None


KINDS = {kind.__name__: kind for kind in (Awkward, Other, Mute, Chatty, Recursive, OddNames, Who, Asks)}


def main() -> None:
    """Serve with the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--log", default="", metavar="FILE")
    options = parser.parse_args()
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()
    KINDS[options.kind](options.log).run()


if __name__ == "__main__":
    main()
