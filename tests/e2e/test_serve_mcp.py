"""`/mcp` of `dial-chat serve`, as a process."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.gateways import MODES, wait_for_tools
from tests.support.program import LONG, entry
from tests.support.web_page import serve_page

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_clients_of_both_revisions_use_the_servers_of_a_process(tmp_path: Path) -> None:
    servers = {"own": {**entry("Server"), "autoApprove": ["*"]}}
    with serve_page(tmp_path, [], servers) as address:
        url, _, token = address.partition("/#token=")
        headers = {"Authorization": f"Bearer {token}"}
        for mode in MODES:
            async with (
                httpx2.AsyncClient(headers=headers, timeout=LONG, trust_env=False, verify=False) as http,
                Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
            ):
                await wait_for_tools(client, "own__echo")
                result = await client.call_tool("own__echo", {"text": mode})
                assert mode in str(result.content)


@pytest.mark.parametrize("words", [["--no-mcp", "--allow-origin", "x://y"], ["--mcp-tools", "most"]])
def test_options_that_contradict_are_errors(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(AssertionError, match=r"--no-mcp|--mcp-tools"), serve_page(tmp_path, [], {}, *words):
        pass
