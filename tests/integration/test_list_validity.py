"""How long lists of a server are valid: as the server says, until it announces a change, or a minute."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as wire
import pytest
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

from dial_client import DialClient
from dial_client.testing import ScriptedProvider
from tests.inner import CACHE_SECONDS, MAX_CUTS, OPEN_SECONDS
from tests.support.fakes import virtual_time
from tests.support.program import LONG as PATIENCE
from tests.support.servers.launch import web, web_server

pytestmark = pytest.mark.anyio


class Lists:
    """Counts the requests for lists, which are valid for `ttl` milliseconds."""

    def __init__(self, ttl: int) -> None:
        self.ttl = ttl
        self.tools = ["first"]
        self.read: list[str] = []
        self.listened = 0

    async def list_tools(self, context: Any, params: Any) -> wire.ListToolsResult:  # noqa: ARG002
        self.read.append("tools")
        tools = [wire.Tool(name=name, input_schema={"type": "object"}) for name in self.tools]
        return wire.ListToolsResult(tools=tools, ttl_ms=self.ttl)

    async def list_resources(self, context: Any, params: Any) -> wire.ListResourcesResult:  # noqa: ARG002
        self.read.append("resources")
        return wire.ListResourcesResult(resources=[wire.Resource(uri="a://b", name="b")], ttl_ms=self.ttl)

    async def listen(self, context: Any, params: Any) -> Any:
        """Serve a stream of notifications that ends soon, as a host does that cuts streams."""
        self.listened += 1
        handler = ListenHandler(InMemorySubscriptionBus())

        async def cut() -> None:
            await anyio.sleep(1)
            handler.close()

        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            return await handler(context, params)


@virtual_time
async def test_a_list_is_valid_for_as_long_as_its_server_says() -> None:
    it = Lists(ttl=300_000)
    server = Server("lists", on_list_tools=it.list_tools, on_list_resources=it.list_resources)
    async with DialClient(ScriptedProvider(["a", "b", "c"]), servers={"lists": server}) as dial:
        for pause in (0.0, 2 * CACHE_SECONDS, 180.0):
            await anyio.sleep(pause)
            await dial.resources.list()
        assert it.read.count("resources") == 2
        it.tools.append("second")
        await anyio.sleep(121)
        await dial.run("Hello.")
        assert [tool.tool for tool in dial.tools] == ["first", "second"]


async def test_the_tools_are_read_once_before_the_first_answer_of_a_server_that_announces_changes() -> None:
    it, handler = Lists(ttl=0), ListenHandler(InMemorySubscriptionBus())
    server = Server("lists", on_list_tools=it.list_tools, on_subscriptions_listen=handler)
    async with DialClient(ScriptedProvider(["Hello."]), servers={"lists": server}) as dial:
        assert (await dial.run("Hello.")).text == "Hello."
        assert it.read == ["tools"]


@virtual_time
async def test_the_tools_are_read_soon_although_a_server_does_not_open_the_stream_of_announcements() -> None:
    it = Lists(ttl=0)

    async def never(context: Any, params: Any) -> Any:
        await anyio.sleep_forever()

    server = Server("lists", on_list_tools=it.list_tools, on_subscriptions_listen=never)
    began = anyio.current_time()
    async with DialClient(ScriptedProvider(["Hello."]), servers={"lists": server}) as dial:
        assert (await dial.run("Hello.")).text == "Hello."
        assert anyio.current_time() - began <= OPEN_SECONDS


@virtual_time
async def test_a_host_that_cuts_streams_is_not_asked_for_them_again_and_again_and_its_lists_expire() -> None:
    it = Lists(ttl=0)
    server = Server(
        "lists", on_list_tools=it.list_tools, on_list_resources=it.list_resources, on_subscriptions_listen=it.listen
    )
    async with DialClient(ScriptedProvider(["a"]), servers={"lists": server}) as dial:
        await anyio.sleep(3600)
        assert it.listened == MAX_CUTS
        it.tools.append("second")
        await anyio.sleep(CACHE_SECONDS)
        await dial.run("Hello.")
        assert [tool.tool for tool in dial.tools] == ["first", "second"]


class Rejecting(Lists):
    """Rejects calls for their headers: until its tools are read after a change, or always."""

    def __init__(self, *, recovers: bool) -> None:
        super().__init__(ttl=0)
        self.recovers = recovers
        self.rejects = False

    def change(self) -> None:
        """Have another definition of the tool, without a notification."""
        self.tools.append("second")
        self.rejects = True

    async def list_tools(self, context: Any, params: Any) -> wire.ListToolsResult:
        self.rejects = self.rejects and not self.recovers
        result = await super().list_tools(context, params)
        result.tools[0].description = f"one of {len(self.tools)}"
        return result

    async def call_tool(self, context: Any, params: Any) -> wire.CallToolResult:  # noqa: ARG002
        if self.rejects:
            raise MCPError(wire.HEADER_MISMATCH, "the headers are not those of the tool")
        return wire.CallToolResult(content=[])


@virtual_time
@pytest.mark.parametrize(("recovers", "readings"), [(True, 1), (False, 2)])
async def test_calls_that_are_rejected_for_their_headers_at_the_same_time_share_one_reading_of_the_tools(
    *, recovers: bool, readings: int
) -> None:
    it = Rejecting(recovers=recovers)
    server = Server("lists", on_list_tools=it.list_tools, on_call_tool=it.call_tool)
    async with DialClient(servers={"lists": server}) as dial:
        assert (await dial.call("first", {})).success
        await anyio.sleep(60)
        before = len(it.read)
        it.change()
        results = []

        async def call() -> None:
            results.append(await dial.call("first", {}))

        for _ in range(3):
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(call)
        assert {result.success for result in results} == {recovers}
        assert len(it.read) - before == readings


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("dropped", [(), ("mcp-param-region", "mcp-param-zone")])
async def test_a_call_over_http_that_is_rejected_for_its_headers_is_sent_again_once(dropped: tuple[str, ...]) -> None:
    with web_server("library.py", "http", *dropped) as url, anyio.fail_after(PATIENCE):
        async with DialClient(servers={"books": web(f"{url}/mcp")}) as dial:
            await dial.call("rezone", {})
            results = [await dial.call("region", {"region": "eu"}) for _ in range(2)]
    assert {result.success for result in results} == {not dropped}
