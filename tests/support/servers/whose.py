"""A server that says whose credential it has got: ``python whose.py stdio [LOG]``, ``python whose.py http``.

Over stdio the credential is the variable ``TOKEN``, over HTTP the bearer of each request. It is named by its digest:
the secret itself would be masked. LOG gets a line for the start of each process, with its id.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from tests.support.servers.app_server import MIME_TYPE
from tests.support.servers.listening import end_in_time, listen

APP = "ui://whose/app.html"
server: MCPServer[Any] = MCPServer("whose", log_level="CRITICAL")


def name(token: str) -> str:
    """Return what a credential is called."""
    return f"of_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def find(context: Context | None = None) -> str:
    request = context.request_context.request if context is not None else None
    if request is not None:
        return name(request.headers.get("authorization", "").removeprefix("Bearer "))
    return name(os.environ.get("TOKEN", ""))


@server.tool(meta={"ui": {"resourceUri": APP}})
def whoami(context: Context) -> str:
    """Say whose credential this is, and the process."""
    return f"{find(context)} {os.getpid()}"


@server.tool()
def leak(context: Context) -> str:
    """Say the credential."""
    request = context.request_context.request
    return request.headers["authorization"] if request is not None else os.environ["TOKEN"]


@server.tool()
async def stay(folder: str) -> str:
    """Create the file ``here`` in a folder, and stay until there is ``leave``."""
    place = anyio.Path(folder)
    await (place / "here").touch()
    while not await (place / "leave").exists():  # noqa: ASYNC110 - another process creates it
        await anyio.sleep(0.01)
    return "left"


@server.resource("whose://{what}")
def me(what: str, context: Context) -> str:
    """Say whose credential this is."""
    return f"{what} {find(context)}"


@server.prompt()
def greet(context: Context) -> str:
    """Greet."""
    return f"I am {find(context)}."


@server.resource("ui://whose/{page}", mime_type=MIME_TYPE)
def app(page: str, context: Context) -> str:
    """Show whose credential this is."""
    return f"<p>{page} {find(context)}</p>"


def main() -> None:
    end_in_time()
    if sys.argv[1] == "http":
        listen(server.streamable_http_app())
        return
    server.add_tool(lambda: "mine", name=find(), description=f"The tool of {find()}.")
    if len(sys.argv) > 2:
        with Path(sys.argv[2]).open("a") as log:
            log.write(f"{os.getpid()}\n")
    server.run("stdio")


if __name__ == "__main__":
    main()
