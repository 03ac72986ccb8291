"""Logins to servers at the client of a gateway, which opens the URL; the browser comes back to this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitRequestURLParams, ElicitResult, ToolListChangedNotification

from dial_client.extend import MemoryLogins
from tests.support.gateway_clients import Person, asking, connected, text_of
from tests.support.gateways import MODES
from tests.support.program import LONG
from tests.support.servers.oauth_server import Guarded, guarded

pytestmark = pytest.mark.anyio
both_modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


async def browse(url: str) -> None:
    """Open a URL as a browser does: log in at once, and follow the redirect to this machine."""
    async with httpx2.AsyncClient(trust_env=False, verify=False) as browser:
        address = (await browser.get(url)).headers["location"]
        await browser.get(str(address), timeout=LONG)


@both_modes
async def test_a_server_that_needs_a_login_gets_it_at_the_client(mode: str, server: Guarded, tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:

        def open_url(params: Any) -> ElicitResult:
            group.start_soon(browse, params.url)
            return ElicitResult(action="accept")

        person = Person(open_url)
        async with (
            asking({"docs": {"url": server.url}}, "*", folder=tmp_path, logins=MemoryLogins()) as gateway,
            connected(gateway, mode, person) as client,
        ):
            assert [tool.name for tool in (await client.list_tools()).tools] == ["log_in"]
            with anyio.fail_after(LONG):
                assert text_of(await client.call_tool("log_in", {"server": "docs"})).startswith(
                    "Logged in: docs is ready"
                )
            assert "docs__echo" in {tool.name for tool in (await client.list_tools()).tools}
            assert not (await client.call_tool("docs__echo", {})).is_error
            assert "log_in" not in {tool.name for tool in (await client.list_tools()).tools}
    (asked,) = person.asked
    assert isinstance(asked, ElicitRequestURLParams)
    assert asked.message.startswith(f"docs wants you to log in at {server.base}")


@both_modes
async def test_a_login_that_the_person_declines_leaves_the_server_as_it_was(
    mode: str, server: Guarded, tmp_path: Path
) -> None:
    person = Person(ElicitResult(action="decline"))
    async with (
        asking({"docs": {"url": server.url}}, "*", folder=tmp_path, logins=MemoryLogins()) as gateway,
        connected(gateway, mode, person) as client,
    ):
        result = await client.call_tool("log_in", {"server": "docs"})
        assert result.is_error
        assert "did not agree to open the URL" in text_of(result)
        unknown = await client.call_tool("log_in", {"server": "other"})
        assert "no server of this name" in text_of(unknown)
        assert [tool.name for tool in (await client.list_tools()).tools] == ["log_in"]


@both_modes
async def test_a_client_that_cannot_open_urls_reads_the_command_that_logs_in(
    mode: str, server: Guarded, tmp_path: Path
) -> None:
    async with (
        asking({"docs": {"url": server.url}}, "*", folder=tmp_path, logins=MemoryLogins()) as gateway,
        connected(gateway, mode, Person(ElicitResult(action="accept")), "roots") as client,
    ):
        result = await client.call_tool("log_in", {"server": "docs"})
    assert result.is_error
    assert "run `dial-chat servers login docs`" in text_of(result)


async def test_clients_hear_when_the_tool_that_logs_in_appears_and_when_it_goes(
    server: Guarded, tmp_path: Path
) -> None:
    changes = anyio.Semaphore(0)

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changes.release()

    async with (
        asking({}, folder=tmp_path, logins=MemoryLogins()) as gateway,
        Client(gateway.server, mode="legacy", message_handler=on_message) as client,
    ):
        for change, names in (
            (lambda: gateway.dial.add_server("docs", {"url": server.url}), ["log_in"]),
            (lambda: gateway.dial.remove_server("docs"), []),
        ):
            await client.list_tools()
            await change()
            with anyio.fail_after(LONG):
                await changes.acquire()
            assert [tool.name for tool in (await client.list_tools()).tools] == names
