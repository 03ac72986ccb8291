"""The gateway: all servers of a client as one MCP server, in both revisions of the protocol."""

from __future__ import annotations

import re
from typing import Any, cast

import anyio
import pytest
from mcp import Client, MCPError
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp_types import (
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    AudioContent,
    CallToolResult,
    Icon,
    ListToolsResult,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)

from tests.inner import GatewayOptions, ToolListing, rewrite_result, tool_calls
from tests.support.clients import calculator
from tests.support.fakes import virtual_time
from tests.support.gateways import MODES, host, running
from tests.support.program import HERE, python_server
from tests.support.servers.launch import until

pytestmark = pytest.mark.anyio

RICH = Tool(
    name="rich",
    title="A rich tool",
    description="Returns all kinds of content.\u200b  With  blanks.",
    input_schema={"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
    output_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
    icons=[Icon(src="https://example.com/icon.png", mime_type="image/png")],
    annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    _meta={"example.com/kept": [1, 2]},
)
RESULT = CallToolResult(
    content=[
        TextContent(text="text"),
        AudioContent(data="AAAA", mime_type="audio/wav"),
        ResourceLink(uri="file:///x", name="x"),
    ],
    structured_content={"n": 1},
    _meta={"example.com/also": True},
)


def rich_server(
    tools: list[Tool] | None = None, calls: list[Any] | None = None, may_start: anyio.Event | None = None
) -> Server[Any]:
    """Return a server that lists `tools` once it may start, and records `_meta` and arguments of calls in `calls`."""
    listed = [RICH] if tools is None else tools

    async def list_tools(*_: object) -> ListToolsResult:
        if may_start is not None:
            await may_start.wait()
        return ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        if calls is not None:
            calls.append((params.name, params.arguments, dict(context.meta or {})))
        if params.name == "refuse":
            raise MCPError(-32050, "refused by the server", {"why": "because"})
        return RESULT

    return Server("rich", on_list_tools=list_tools, on_call_tool=call_tool)


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_is_listed_as_its_server_lists_it_but_for_its_name(mode: str) -> None:
    async with running(host({"one": rich_server()})) as gateway, Client(gateway.server, mode=mode) as client:
        listed = (await client.list_tools()).tools
    assert listed == [RICH.model_copy(update={"name": "one__rich"})]


@pytest.mark.parametrize("mode", MODES)
async def test_a_result_is_handed_on_as_the_server_sent_it(mode: str) -> None:
    async with running(host({"one": rich_server()}, "one/*")) as gateway, Client(gateway.server, mode=mode) as client:
        result = await client.call_tool("one__rich", {"a": None})
    assert result.content == rewrite_result("one", RESULT).content
    assert result.structured_content == RESULT.structured_content
    assert (result.meta or {})["example.com/also"] is True
    assert (result.meta or {}).get("io.modelcontextprotocol/serverInfo", {}).get("name") in (None, "dial-client")


async def test_a_client_of_an_older_revision_reads_a_structured_result_that_is_no_object_as_text() -> None:
    async def list_tools(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="count", input_schema={"type": "object"})])

    async def call_tool(*_: object) -> CallToolResult:
        return CallToolResult(content=[], structured_content=cast("Any", [1, 2]))

    server = Server("later", on_list_tools=list_tools, on_call_tool=call_tool)
    async with running(host({"one": server}, "one/*")) as gateway, Client(gateway.server, mode="legacy") as client:
        result = await client.call_tool("one__count", {})
    assert (result.content, result.structured_content) == ([TextContent(text="[1, 2]")], None)


async def test_what_a_client_says_about_itself_is_checked_with_each_call_that_says_something_else() -> None:
    async with running(host({"one": rich_server()}, "one/*")) as gateway, Client(gateway.server) as client:
        assert not (await client.call_tool("one__rich", {})).is_error
        for _ in range(2):
            with pytest.raises(MCPError) as refused:
                await client.call_tool("one__rich", {}, meta=cast("Any", {LOG_LEVEL_META_KEY: "loud"}))
            assert refused.value.error.code == INVALID_PARAMS
        assert not (await client.call_tool("one__rich", {})).is_error


async def test_the_meta_of_a_call_reaches_the_server() -> None:
    calls: list[Any] = []
    server = rich_server(calls=calls)
    async with running(host({"one": server}, "one/*")) as gateway, Client(gateway.server, mode="legacy") as client:
        await client.call_tool("one__rich", {"a": "x"}, meta=cast("Any", {"example.com/trace": "t1"}))
    ((name, arguments, meta),) = calls
    assert (name, arguments, meta["example.com/trace"]) == ("rich", {"a": "x"}, "t1")


async def test_names_are_short_stable_and_unique() -> None:
    long = "a_tool_with_a_name_that_is_longer_than_any_host_accepts_it"
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in (long, f"{long}_2", "odd name!")]
    alone = host({"one": rich_server(tools)})
    both = host({"one": rich_server(tools), "two": rich_server(tools)})
    names = []
    for dial in (alone, both):
        async with running(dial) as gateway, Client(gateway.server) as client:
            names.append([tool.name for tool in (await client.list_tools()).tools])
    assert all(len(name) <= 45 for name in names[1])
    assert len({*names[1]}) == 6
    assert {*names[0]} < {*names[1]}
    assert "one__odd_name_" in names[0]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_makes_too_many_calls_is_told_when_to_go_on_and_others_are_not_affected(mode: str) -> None:
    options = GatewayOptions(calls_per_minute=2)
    async with (
        running(host({"calc": calculator()}, "calc/*"), options) as gateway,
        Client(gateway.server, mode=mode) as client,
        Client(gateway.server, mode=mode) as neighbour,
    ):
        results = [await client.call_tool("calc__add", {"a": 1, "b": 2}) for _ in range(3)]
        unaffected = await neighbour.call_tool("calc__add", {"a": 1, "b": 2})
    assert [result.is_error for result in results] == [False, False, True]
    assert re.fullmatch(r"Not called: 2 calls a minute .* Make the call again in \d+ s\.", read_text(results[-1]))
    assert not unaffected.is_error


@pytest.mark.parametrize("mode", MODES)
async def test_a_denied_call_says_which_rule_and_what_allows_it(mode: str) -> None:
    dial = host({"calc": calculator()})
    async with running(dial) as gateway, Client(gateway.server, mode=mode) as client:
        unknown = await client.call_tool("calc__add", {"a": 1, "b": 2})
        dial.approvals.add_rule("deny", "calc/fail")  # type: ignore[arg-type]
        denied = await client.call_tool("calc__fail", {})
    assert unknown.is_error and denied.is_error
    assert isinstance(unknown.content[0], TextContent) and isinstance(denied.content[0], TextContent)
    assert "dial-chat grants --allow calc/add" in unknown.content[0].text
    assert "denied by /deny calc/fail" in denied.content[0].text


@pytest.mark.parametrize("mode", MODES)
async def test_an_unknown_tool_is_an_error_of_the_protocol(mode: str) -> None:
    async with running(host({"calc": calculator()})) as gateway, Client(gateway.server, mode=mode) as client:
        with pytest.raises(MCPError, match=r"no tool 'calc__ad'\. Did you mean 'calc__add'") as caught:
            await client.call_tool("calc__ad", {})
    assert caught.value.error.code == INVALID_PARAMS


async def test_the_error_of_a_server_keeps_its_code_and_data() -> None:
    tools = [Tool(name="refuse", input_schema={"type": "object"})]
    async with running(host({"one": rich_server(tools)}, "one/*")) as gateway, Client(gateway.server) as client:
        with pytest.raises(MCPError, match="refused by the server") as caught:
            await client.call_tool("one__refuse", {})
    assert (caught.value.error.code, caught.value.error.data) == (-32050, {"why": "because"})


@pytest.mark.parametrize("mode", MODES)
async def test_the_tools_of_a_new_server_are_announced(mode: str) -> None:
    changed = anyio.Event()

    async def on_message(message: object) -> None:
        if "ToolListChanged" in type(message).__name__:
            changed.set()

    dial = host({"calc": calculator()})
    async with running(dial) as gateway, Client(gateway.server, mode=mode, message_handler=on_message) as client:
        before = {tool.name for tool in (await client.list_tools()).tools}

        async def listen() -> None:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    changed.set()
                    return

        async with anyio.create_task_group() as group:
            if mode != "legacy":
                group.start_soon(listen)
                await anyio.wait_all_tasks_blocked()
            await dial.add_server("one", rich_server())
            with anyio.fail_after(60):
                await changed.wait()
        after = {tool.name for tool in (await client.list_tools()).tools}
    assert after - before == {"one__rich"}


@pytest.mark.parametrize("listing", [ToolListing.ALL, ToolListing.SEARCH])
@pytest.mark.parametrize("mode", MODES)
async def test_a_call_waits_for_the_start_of_its_own_server_and_of_no_other(mode: str, listing: ToolListing) -> None:
    """A host that remembers the names of tools may call before the server is ready, or while it is replaced."""
    may_start = anyio.Event()
    dial = host({"calc": calculator()}, "*")
    texts: list[str] = []
    async with (
        running(dial, GatewayOptions(listing=listing)) as gateway,
        Client(gateway.server, mode=mode) as client,
        anyio.create_task_group() as group,
    ):

        async def call() -> None:
            if listing is ToolListing.ALL:
                texts.append(read_text(await client.call_tool("late__rich", {"a": None})))
            else:
                found = {"name": "late__rich", "arguments": {"a": None}}
                texts.append(read_text(await client.call_tool("call_tool", found)))

        group.start_soon(dial.add_server, "late", rich_server(may_start=may_start))
        await anyio.wait_all_tasks_blocked()
        group.start_soon(call)
        with pytest.raises(MCPError, match=r"There is no tool 'calc__rich'.*'late' \(it is still starting\)"):
            await client.call_tool("calc__rich", {})
        assert texts == []
        may_start.set()
        with pytest.raises(MCPError, match="There is no tool 'late__poor'"):
            await client.call_tool("late__poor", {})
    assert texts == ["text"]


@virtual_time
@pytest.mark.parametrize("mode", MODES)
async def test_the_first_list_comes_before_hosts_give_up_although_a_server_does_not_start(mode: str) -> None:
    """Of the hosts that were tried, `claude mcp list` is the quickest to give up: five seconds after its request."""
    dial = host({"calc": calculator()})
    async with (
        running(dial) as gateway,
        Client(gateway.server, mode=mode) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(dial.add_server, "late", rich_server(may_start=anyio.Event()))
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(4.5):
            names = {tool.name for tool in (await client.list_tools()).tools}
        group.cancel_scope.cancel()
    assert "calc__add" in names


@pytest.mark.parametrize("mode", MODES)
async def test_each_connection_is_a_client_of_its_own(mode: str) -> None:
    async with running(host({"calc": calculator()}, "calc/*")) as gateway:
        async with Client(gateway.server, mode=mode) as first, Client(gateway.server, mode=mode) as second:
            for client in (first, second, first):
                await client.call_tool("calc__add", {"a": 1, "b": 2})
            assert len({session.id for session in gateway.sessions}) == 2
        assert list(gateway.sessions) == []


@pytest.mark.parametrize("mode", MODES)
async def test_results_are_shortened_on_request_and_read_on_by_their_client_alone(mode: str) -> None:
    server = MCPServer("text")

    @server.tool()
    def count(limit: int) -> str:
        """Count."""
        return " ".join(map(str, range(limit)))

    options = GatewayOptions(max_result_chars=1_000)
    async with (
        running(host({"text": server}, "text/*"), options) as gateway,
        Client(gateway.server, mode=mode) as client,
        Client(gateway.server, mode=mode) as stranger,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["text__count"].output_schema is None
        assert (await client.call_tool("text__count", {"limit": 9})).structured_content == {
            "result": "0 1 2 3 4 5 6 7 8"
        }
        shown = read_text(await client.call_tool("text__count", {"limit": 5_000}))
        assert shown.startswith("0 1 2") and shown.endswith("4999") and len(shown) < 1_300
        key = shown.partition('read_result(id="')[2].partition('"')[0]
        found = read_text(await client.call_tool("read_result", {"id": key, "search": " 3333 "}))
        assert "3332 3333 3334" in found
        wrong = await client.call_tool("read_result", {"offset": 1})
        assert wrong.is_error and "The arguments do not fit" in read_text(wrong)
        foreign = await stranger.call_tool("read_result", {"id": key})
        assert foreign.is_error and "There is no result" in read_text(foreign)


def read_text(result: CallToolResult) -> str:
    """Return the text of the first block of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


@pytest.mark.parametrize("mode", MODES)
async def test_untrusted_content_taints_the_client_that_received_the_content_alone(mode: str) -> None:
    entry = python_server(HERE / "servers" / "sdk.py", "stdio", autoApprove=["*"], untrusted=["big"])
    async with (
        running(host({"one": entry})) as gateway,
        Client(gateway.server, mode=mode) as reader,
        Client(gateway.server, mode=mode) as neighbour,
    ):
        assert not (await reader.call_tool("one__big", {"size": 1})).is_error
        assert "untrusted content from one/big" in read_text(await reader.call_tool("one__echo", {"text": "x"}))
        assert read_text(await neighbour.call_tool("one__echo", {"text": "x"})) == "x"


async def test_a_client_has_a_bounded_number_of_calls_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "MAX_CALLS", 2)
    server, release = MCPServer("slow"), anyio.Event()

    @server.tool()
    async def wait() -> str:
        """Wait."""
        await release.wait()
        return "done"

    results: list[str] = []
    async with running(host({"slow": server}, "slow/*")) as gateway, Client(gateway.server, mode="legacy") as client:

        async def call() -> None:
            results.append(read_text(await client.call_tool("slow__wait", {})))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            group.start_soon(call)
            await until(lambda: [session.calls for session in gateway.sessions] == [2])
            refused = await client.call_tool("slow__wait", {})
            release.set()
    assert refused.is_error and "2 calls in flight" in read_text(refused)
    assert results == ["done", "done"]
