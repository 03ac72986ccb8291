"""Resources, subscriptions and log messages at `/mcp`: two clients of one service, each with its own."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from dial_client.serve import McpOptions
from tests.integration.test_gateway_logs import Logged
from tests.integration.test_gateway_subscriptions import Heard, write
from tests.support.gateways import MODES
from tests.support.http_service import serve
from tests.support.mcp_clients import mcp_client
from tests.support.program import LONG
from tests.support.servers.library import library
from tests.support.servers.talker import talker

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
BOOKS: dict[str, Any] = {"allow": ["books/*"], "mcp": McpOptions()}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("mode", MODES)
async def test_resources_and_prompts_are_read(mode: str) -> None:
    async with serve([], {"books": library()}, **BOOKS) as service, mcp_client(service, mode) as client:
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        [content] = (await client.read_resource("dial+books:book://1")).contents
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        reference = wire.PromptReference(name="books__greet")
        completed = (await client.complete(reference, {"name": "name", "value": "A"})).completion.values
    assert listed[0] == content.uri == "dial+books:book://1"
    assert (prompts, completed) == (["books__greet", "books__show", "books__talk"], ["Ada", "Alan"])


async def test_an_update_reaches_the_session_that_subscribed() -> None:
    heard, unconcerned = Heard(), Heard()
    async with (
        serve([], {"books": library()}, **BOOKS) as service,
        mcp_client(service, "legacy", message_handler=heard) as client,
        mcp_client(service, "legacy", message_handler=unconcerned) as bystander,
    ):
        await bystander.list_resources()
        await client.subscribe_resource("dial+books:book://1")
        with anyio.fail_after(LONG):
            while not heard.updates:  # the stream of notifications may not be open yet
                await write(client, "book://1")
                await anyio.sleep(0.05)
    assert set(heard.updates) == {"dial+books:book://1"}
    assert unconcerned.updates == []


async def test_a_stream_has_updates_and_changes_of_lists() -> None:
    async with (
        serve([], {"books": library()}, **BOOKS) as service,
        mcp_client(service, "2026-07-28") as client,
        client.listen(resources_list_changed=True, resource_subscriptions=["dial+books:book://1"]) as stream,
    ):
        await write(client, "book://1")
        assert await anext(stream) == ResourceUpdated(uri="dial+books:book://1")
        await write(client, "book://new")
        assert await anext(stream) == ResourcesListChanged()


@pytest.mark.parametrize("mode", MODES)
async def test_each_client_gets_the_log_messages_about_its_calls(mode: str) -> None:
    first, second = Logged(), Logged()
    level: Any = {"log_level": "error"} if mode != "legacy" else {}
    async with (
        serve([], {"talker": talker()}, allow=["talker/*"], mcp=McpOptions()) as service,
        mcp_client(service, mode, logging_callback=first, **level) as client,
        mcp_client(service, mode, logging_callback=second, client_info=_named("second"), **level) as neighbour,
    ):
        if mode == "legacy":
            await client.set_logging_level("error")
        await client.call_tool("talker__say", {"text": "a"})
        await neighbour.call_tool("talker__say", {"text": "b"})
    assert (first.levels, first.texts) == (["error"], {"a"})
    assert (second.levels, second.texts) == (["info", "error"] if mode == "legacy" else ["error"], {"b"})


@pytest.mark.parametrize("mode", MODES)
async def test_no_message_of_a_burst_of_calls_is_lost_or_reaches_another_client(mode: str) -> None:
    first, second = Logged(), Logged()
    level: Any = {"log_level": "info"} if mode != "legacy" else {}
    async with (
        serve([], {"talker": talker()}, allow=["talker/*"], mcp=McpOptions()) as service,
        mcp_client(service, mode, logging_callback=first, **level) as client,
        mcp_client(service, mode, logging_callback=second, client_info=_named("second"), **level) as neighbour,
    ):
        async with anyio.create_task_group() as group:
            for number in range(10):
                caller, text = (client, "a") if number % 2 else (neighbour, "b")
                group.start_soon(caller.call_tool, "talker__say", {"text": text, "together": 10})
        for logged in (first, second):
            await logged.wait_for(10)
            assert sorted(logged.levels) == ["error"] * 5 + ["info"] * 5
    assert (first.texts, second.texts) == ({"a"}, {"b"})


def _named(name: str) -> wire.Implementation:
    return wire.Implementation(name=name, version="1")
