"""How the tests start these servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.connection import Connection
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import Target
from dial_client.servers.status import OnChange, ServerState
from dial_client.settings.config_types import ServerSettings, Transport
from tests.support.program import LONG, python_server, start_python

HERE = Path(__file__).parent


def script(name: str, *args: object, **settings: Any) -> ServerSettings:
    """Return the entry of a script in this folder, to be run over stdio."""
    argv = ("-W", "ignore", str(HERE / name), *(str(arg) for arg in args))
    usual = {"name": "it", "transport": Transport.STDIO, "command": sys.executable, "args": argv}
    return ServerSettings(**(usual | settings))


def raw(*args: object, **settings: Any) -> ServerSettings:
    """Return the entry of a raw server: its behaviour, then its options."""
    return script("raw.py", *args, **settings)


def python_script(name: str, *args: object, **settings: Any) -> ServerSettings:
    """Return the entry of a script in this folder that imports an SDK, for tests that are not about its start."""
    entry = python_server(HERE / name, *map(str, args))
    return ServerSettings(
        **({"name": "it", "transport": Transport.STDIO} | entry | {"args": tuple(entry["args"])} | settings)
    )


def web(url: str, **settings: Any) -> ServerSettings:
    """Return the entry of a URL."""
    return ServerSettings(**({"name": "it", "transport": Transport.HTTP, "url": url} | settings))


@contextmanager
def web_server(name: str, *args: str) -> Iterator[str]:
    """Run a script that serves HTTP, and yield its address without a path. The script is stopped afterwards."""
    arguments = ["-W", "ignore", str(HERE / name), *args]
    pipe = subprocess.PIPE
    with start_python(HERE, arguments, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@asynccontextmanager
async def connections(targets: dict[str, Target], on_change: OnChange | None = None) -> AsyncIterator[ServerManager]:
    """Run servers, ready or known not to be, until they are left."""
    background_tasks = await BackgroundTasks.open()
    servers = ServerManager(targets, ClientCapabilities(on_change))
    try:
        servers.start(background_tasks)
        with anyio.fail_after(LONG):
            await servers.wait_settled()
        yield servers
    finally:
        with anyio.CancelScope(shield=True):
            await servers.aclose()
            await background_tasks.aclose()


@asynccontextmanager
async def connection(target: Target) -> AsyncIterator[Connection]:
    """Run one server until it is left."""
    async with connections({"it": target}) as servers:
        yield servers["it"]


async def call_for_text(connection: Connection, tool: str = "echo", **arguments: Any) -> str:
    """Call a tool and return the text of its result."""
    with anyio.fail_after(LONG):
        result = await connection.call(tool, arguments)
    return "".join(block.text for block in result.content if block.type == "text")


def state(connection: Connection) -> ServerState:
    """Return the present state of a server."""
    return connection.status.state


def read_requests(log: Path) -> list[str]:
    """Return the methods that a raw server received, in order."""
    return [json.loads(line)["method"] for line in log.read_text().splitlines()] if log.exists() else []


def is_alive(pid: int) -> bool:
    """Whether there is a process with this id that is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second one if it ends between opening and reading
        return False
    return state not in "ZX"


async def until(is_so: Callable[[], object]) -> None:
    """Wait until the condition is true."""
    with anyio.fail_after(LONG):
        while not is_so():  # noqa: ASYNC110 (what is waited for happens in another process)
            await anyio.sleep(0.01)
