"""MCP Apps through the gateway: their pages, the tools that belong to them, and who is told of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.extension import advertise
from mcp_types import TextContent, TextResourceContents

from dial_client import Callbacks
from tests.inner import Gateway
from tests.support.gateway_clients import asking
from tests.support.gateways import MODES, host, running
from tests.support.servers import app_server
from tests.support.servers.library import library

pytestmark = pytest.mark.anyio

UI = "io.modelcontextprotocol/ui"
SETTINGS: dict[str, Any] = {"mimeTypes": [app_server.MIME_TYPE]}
COUNTER = "ui://dial+apps/apps/counter.html"


@asynccontextmanager
async def apps() -> AsyncGenerator[Gateway]:
    """Run a gateway for a server with MCP Apps, and for another one."""
    servers = {"apps": app_server.build(), "books": library()}
    async with running(host(servers, "apps/*", callbacks=Callbacks(apps=True))) as gateway:
        yield gateway


@pytest.mark.parametrize("mode", MODES)
async def test_the_page_of_a_tool_is_read_at_its_address(mode: str) -> None:
    async with Client(app_server.build(), mode=mode) as direct:
        [expected] = (await direct.read_resource(app_server.COUNTER)).contents
    async with apps() as gateway, Client(gateway.server, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        [page] = (await client.read_resource(COUNTER)).contents
        listed = [resource.uri for resource in (await client.list_resources()).resources]
    assert (tools["apps__show_counter"].meta or {})["ui"]["resourceUri"] == COUNTER
    assert isinstance(page, TextResourceContents) and page.mime_type == app_server.MIME_TYPE
    assert page == expected.model_copy(update={"uri": COUNTER})
    assert COUNTER in listed


async def test_a_page_reads_what_it_knows_by_its_own_uri() -> None:
    async with apps() as gateway, Client(gateway.server) as client:
        [page] = (await client.read_resource(app_server.COUNTER)).contents
    assert page.uri == app_server.COUNTER


@pytest.mark.parametrize("mode", MODES)
async def test_tools_for_apps_alone_are_listed_for_hosts_that_show_apps(mode: str) -> None:
    async with apps() as gateway:
        async with Client(gateway.server, mode=mode) as client:
            without = {tool.name for tool in (await client.list_tools()).tools}
        async with Client(gateway.server, mode=mode, extensions=[advertise(UI, SETTINGS)]) as client:
            with_apps = {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("apps__increase", {"by": 2})
    assert with_apps - without == {"apps__increase"}
    assert not result.is_error and result.structured_content == {"count": 2}


async def test_servers_and_clients_are_told_of_apps() -> None:
    """A client learns of extensions since 2026-07-28; before, a server has no place to name them."""
    async with apps() as gateway, Client(gateway.server, mode="auto") as client:
        await gateway.dial.ready()
        [content] = (await client.call_tool("apps__capabilities", {})).content
        async with Client(gateway.server, mode="auto") as later:
            advertised = [known.server_capabilities.extensions for known in (client, later)]
    assert [extensions and extensions[UI] for extensions in advertised] == [SETTINGS] * 2
    assert isinstance(content, TextContent) and UI in content.text


async def test_a_server_learns_whether_the_client_of_a_call_shows_apps(tmp_path: Path) -> None:
    """A server may say less to a model whose user sees a page: one gateway has clients of both kinds."""
    options: list[dict[str, Any]] = [{}, {"extensions": [advertise(UI, SETTINGS)]}]
    async with asking({"apps": app_server.build()}, "apps/*", folder=tmp_path, callbacks={"apps": True}) as gateway:
        answers = []
        for more in options:
            async with Client(gateway.server, **more) as client:
                [content] = (await client.call_tool("apps__capabilities", {})).content
                answers.append(UI in str(content))
    assert answers == [False, True]


async def test_without_apps_nobody_is_told_of_any() -> None:
    async with running(host({"books": library()})) as gateway:
        await gateway.dial.ready()
        async with Client(gateway.server, mode="auto") as client:
            assert client.server_capabilities.tools is not None
            assert UI not in (client.server_capabilities.extensions or {})
