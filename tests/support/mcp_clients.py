"""Clients of ``/mcp``: the SDK's client, and single requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.http_service import TOKEN, HttpService

HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "authorization": f"Bearer {TOKEN}",
}
INFO = {"name": "a-host", "version": "1.0"}


@asynccontextmanager
async def mcp_client(service: HttpService, mode: str, token: str = TOKEN, **options: Any) -> AsyncGenerator[Client]:
    """Connect the SDK's client to ``/mcp`` of a service."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False, verify=False) as http,
        Client(streamable_http_client(f"{service.url}/mcp", http_client=http), mode=mode, **options) as client,
    ):
        yield client


def initialize(version: str = "2025-11-25") -> dict[str, Any]:
    """Return the request that begins a session."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": INFO}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


async def post(http: httpx2.AsyncClient, url: str, message: Any, **headers: str) -> httpx2.Response:
    """Send a message to ``/mcp``; names of headers have ``_`` for ``-``."""
    sent = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post(f"{url}/mcp", content=json.dumps(message), headers=sent)


async def begin_session(http: httpx2.AsyncClient, url: str) -> str:
    """Begin a session and return its id."""
    response = await post(http, url, initialize())
    assert response.status_code == 200, response.text
    id_: str = response.headers["mcp-session-id"]
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await post(http, url, initialized, mcp_session_id=id_)).status_code == 202
    return id_
