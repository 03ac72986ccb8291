"""Changes of resources and of lists through the gateway: to the clients that asked for them, and no others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated

from tests.inner import Gateway, Protocol
from tests.support.gateways import host, running
from tests.support.program import LONG
from tests.support.servers.launch import python_script
from tests.support.servers.library import library

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

UPSTREAM = [("here", "asyncio"), ("here", "trio"), ("legacy", "trio")]
"""How the gateway reaches its server: in this process with the newest protocol, or as a process with the older one."""
every_way = pytest.mark.parametrize(("way", "anyio_backend"), UPSTREAM)


@asynccontextmanager
async def books(way: str = "here", **more: Any) -> AsyncGenerator[Gateway]:
    """Run a gateway for the server of books."""
    target = library() if way == "here" else python_script("library.py", "stdio", protocol=Protocol.LEGACY)
    async with running(host({"books": target, **more}, "books/*")) as gateway:
        yield gateway


class Heard:
    """What a client of the older revision is notified of."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._news = anyio.Event()

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)
        self._news.set()
        self._news = anyio.Event()

    def find(self, kind: type[Any]) -> list[Any]:
        """Return the notifications of a type."""
        return [message for message in self.messages if isinstance(message, kind)]

    async def wait(self, kind: type[Any], count: int = 1) -> list[Any]:
        """Wait for a number of notifications of a type, and return them."""
        with anyio.fail_after(LONG):
            while len(found := self.find(kind)) < count:
                await self._news.wait()
        return found

    @property
    def updates(self) -> list[str]:
        """The addresses of changed resources."""
        return [message.params.uri for message in self.find(wire.ResourceUpdatedNotification)]


async def write(client: Client, uri: str, text: str = "new") -> None:
    assert not (await client.call_tool("books__write", {"uri": uri, "text": text})).is_error


async def asked(client: Client) -> list[str]:
    """Return the log of requests to the server of books."""
    [content] = (await client.call_tool("books__asked", {})).content
    assert isinstance(content, wire.TextContent)
    return content.text.splitlines()


# Resources that change


@every_way
async def test_an_update_reaches_the_session_that_subscribed_and_no_other(way: str) -> None:
    first, second = Heard(), Heard()
    async with (
        books(way) as gateway,
        Client(gateway.server, mode="legacy", message_handler=first) as client_a,
        Client(gateway.server, mode="legacy", message_handler=second) as client_b,
    ):
        await client_a.subscribe_resource("dial+books:book://1")
        await client_b.subscribe_resource("dial+books:book://2")
        await write(client_a, "book://1")
        await first.wait(wire.ResourceUpdatedNotification)
        await write(client_a, "book://2")
        await second.wait(wire.ResourceUpdatedNotification)
    assert (first.updates, second.updates) == (["dial+books:book://1"], ["dial+books:book://2"])


async def test_nothing_arrives_after_the_end_of_a_subscription() -> None:
    heard = Heard()
    async with books("legacy") as gateway, Client(gateway.server, mode="legacy", message_handler=heard) as client:
        for _ in range(2):
            await client.subscribe_resource("dial+books:book://1")
            await client.subscribe_resource("dial+books:book://1")
            await client.unsubscribe_resource("dial+books:book://1")
            await client.unsubscribe_resource("dial+books:book://1")
            with anyio.fail_after(LONG):
                while [line.split()[0] for line in await asked(client) if "subscribe" in line][-1] != "unsubscribe":  # noqa: ASYNC110 - asks again
                    await anyio.sleep(0.01)
        await write(client, "book://1")
        subscribed = [line for line in await asked(client) if "subscribe" in line]
    assert heard.updates == []
    assert subscribed == ["subscribe book://1", "unsubscribe book://1"] * 2


async def test_the_subscriptions_of_a_client_end_with_its_connection() -> None:
    async with books("legacy") as gateway:
        async with Client(gateway.server, mode="legacy") as leaving:
            await leaving.subscribe_resource("dial+books:book://1")
        async with Client(gateway.server, mode="legacy") as client:
            with anyio.fail_after(LONG):
                while "unsubscribe book://1" not in await asked(client):  # noqa: ASYNC110 - asks again
                    await anyio.sleep(0.01)


@every_way
async def test_a_stream_has_the_updates_that_it_was_opened_for(way: str) -> None:
    async with books(way) as gateway, Client(gateway.server, mode="2026-07-28") as client:
        uris = ["dial+books:book://1", "dial+nothing:book://1"]
        async with (
            client.listen(resource_subscriptions=uris) as first,
            client.listen(resource_subscriptions=["dial+books:book://2"]) as second,
        ):
            assert first.honored.resource_subscriptions == ["dial+books:book://1"]
            await write(client, "book://1")
            await write(client, "book://2")
            assert await anext(first) == ResourceUpdated(uri="dial+books:book://1")
            assert await anext(second) == ResourceUpdated(uri="dial+books:book://2")
            await write(client, "book://1")
            assert await anext(first) == ResourceUpdated(uri="dial+books:book://1")


async def test_a_change_below_a_resource_is_a_change_of_it() -> None:
    heard = Heard()
    address = "dial+books:book://shelf"
    async with (
        books("legacy") as gateway,
        Client(gateway.server, mode="legacy", message_handler=heard) as older,
        Client(gateway.server, mode="2026-07-28") as newer,
        newer.listen(resource_subscriptions=[address]) as stream,
    ):
        await older.subscribe_resource(address)
        await write(older, "book://shelf/7")
        await heard.wait(wire.ResourceUpdatedNotification)
        assert await anext(stream) == ResourceUpdated(uri=address)
    assert heard.updates == [f"{address}/7"]


async def test_a_server_that_announces_no_changes_refuses_a_subscription() -> None:
    async def list_resources(*_: object) -> wire.ListResourcesResult:
        return wire.ListResourcesResult(resources=[wire.Resource(uri="a:b", name="b")])

    servers = {"plain": Server("plain", on_list_resources=list_resources)}
    async with running(host(servers)) as gateway:
        async with Client(gateway.server, mode="legacy") as older:
            with pytest.raises(MCPError, match="announces no changes of 'a:b'"):
                await older.subscribe_resource("dial+plain:a:b")
        async with Client(gateway.server) as newer, newer.listen(resource_subscriptions=["dial+plain:a:b"]) as stream:
            assert stream.honored.resource_subscriptions is None


async def test_a_subscription_outlasts_a_restart_of_its_server() -> None:
    heard = Heard()
    async with books() as gateway, Client(gateway.server, mode="legacy", message_handler=heard) as client:
        await client.subscribe_resource("dial+books:book://1")
        await gateway.dial.restart_server("books")
        await heard.wait(wire.ResourceUpdatedNotification)
        await write(client, "book://1")
        await heard.wait(wire.ResourceUpdatedNotification, 2)


# Lists that change


@every_way
async def test_changes_of_lists_are_announced(way: str) -> None:
    heard, unconcerned = Heard(), Heard()
    async with (
        books(way) as gateway,
        Client(gateway.server, mode="legacy", message_handler=heard) as older,
        Client(gateway.server, mode="2026-07-28") as newer,
        Client(gateway.server, mode="2026-07-28", message_handler=unconcerned) as silent,
    ):
        await silent.list_resources()
        await older.list_resources()
        await older.list_prompts()
        async with newer.listen(resources_list_changed=True, prompts_list_changed=True) as stream:
            await write(older, "book://new")
            await heard.wait(wire.ResourceListChangedNotification)
            assert await anext(stream) == ResourcesListChanged()
            await older.call_tool("books__teach", {"name": "sing"})
            await heard.wait(wire.PromptListChangedNotification)
            assert await anext(stream) == PromptsListChanged()
        resources = [resource.uri for resource in (await older.list_resources()).resources]
        prompts = [prompt.name for prompt in (await newer.list_prompts()).prompts]
    assert "dial+books:book://new" in resources and "books__sing" in prompts
    assert unconcerned.messages == []


async def test_many_changes_are_announced_once() -> None:
    heard = Heard()
    async with books() as gateway, Client(gateway.server, mode="legacy", message_handler=heard) as client:
        await client.list_resources()
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(write, client, f"book://new/{number}")
        await heard.wait(wire.ResourceListChangedNotification)
        with anyio.fail_after(LONG):
            while len((await client.list_resources()).resources) < 26:  # noqa: ASYNC110 - the last change may be on its way
                await anyio.sleep(0.01)
    assert len(heard.messages) < 10


async def test_a_restart_without_a_change_is_not_announced() -> None:
    heard = Heard()
    async with books("legacy") as gateway, Client(gateway.server, mode="legacy", message_handler=heard) as client:
        await client.list_prompts()
        await client.list_resources()
        assert (await client.call_tool("books__die", {})).is_error
        await client.call_tool("books__teach", {"name": "sing"})
        await heard.wait(wire.PromptListChangedNotification)
    assert heard.find(wire.ResourceListChangedNotification) == []


async def test_the_lists_of_a_server_that_was_added_are_announced() -> None:
    heard = Heard()
    async with books() as gateway, Client(gateway.server, mode="legacy", message_handler=heard) as client:
        await client.list_prompts()
        await gateway.dial.add_server("more", library())
        await heard.wait(wire.PromptListChangedNotification)
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
    assert "more__greet" in names
