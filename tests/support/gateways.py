"""A gateway in this process, and clients of the SDK that are connected to it, or to `dial-chat gateway`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from dial_client import ApprovalPolicy, DialClient
from tests.inner import Denials, Gateway, GatewayOptions
from tests.support.program import environment, python_server

MODES = ("legacy", "2026-07-28")
"""The modes of the SDK's client: the protocol up to 2025-11-25 with its handshake, and the one since."""


def host(servers: dict[str, Any], *allow: str, **options: Any) -> DialClient:
    """Return a client whose calls run only if a pattern allows them."""
    return DialClient(servers=servers, approve=Denials().deny, approval=ApprovalPolicy(allow=allow), **options)


@asynccontextmanager
async def running(dial: DialClient, options: GatewayOptions | None = None) -> AsyncGenerator[Gateway]:
    """Run a gateway for a client, whose servers are ready."""
    async with dial, anyio.create_task_group() as group:
        gateway = Gateway(dial, options=options)
        group.start_soon(gateway.run)
        yield gateway
        group.cancel_scope.cancel()


@asynccontextmanager
async def program(folder: Path, mode: str, *words: str, **options: Any) -> AsyncGenerator[Client]:
    """Connect a client to `dial-chat gateway`, a process in `folder`."""
    entry = python_server("dial_client", "gateway", *words)
    parameters = StdioServerParameters(**entry, cwd=folder, env=environment(folder))
    async with Client(stdio_client(parameters), mode=mode, **options) as client:
        yield client


async def wait_for_tools(client: Client, *names: str) -> None:
    """Wait until a client lists tools of these names."""
    while not set(names) <= {tool.name for tool in (await client.list_tools()).tools}:  # noqa: ASYNC110 - it asks again
        await anyio.sleep(0.05)
