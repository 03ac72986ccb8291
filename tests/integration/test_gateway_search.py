"""Many tools for hosts that cannot search: three tools of the gateway find, describe and call the others."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from dial_client import Limits
from tests.inner import MAX_DEFINITION, MAX_DESCRIBED, GatewayOptions, ToolListing
from tests.support.audit_logs import Entries
from tests.support.clients import calculator
from tests.support.gateways import MODES, host, running
from tests.support.program import entry

pytestmark = pytest.mark.anyio
SEARCH = GatewayOptions(listing=ToolListing.SEARCH)
META = ["search_tools", "describe_tool", "call_tool"]


def many_tools(count: int = 300, **more: Any) -> Server[Any]:
    """Return a server with many tools, each of which returns its name and arguments."""
    tools = [
        Tool(
            name=f"handle_{index}",
            description=f"Handle case {index}.",
            input_schema={"type": "object", "properties": {"case": {"type": "string"}}, "required": ["case"]},
            output_schema={"type": "object"},
        )
        for index in range(count)
    ]
    tools.append(Tool(name="create_invoice", description="Create an invoice.", input_schema={"type": "object"}, **more))

    async def list_tools(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        called = {"tool": params.name, "arguments": params.arguments or {}}
        return CallToolResult(content=[TextContent(text=json.dumps(called))], structured_content=called)

    return Server("many", on_list_tools=list_tools, on_call_tool=call_tool)


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def names_of(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def say(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that succeeds, and return its text."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_is_found_described_and_called(mode: str) -> None:
    dial = host({"many": many_tools(), "sums": calculator()}, "many/*")
    async with running(dial, SEARCH) as gateway, Client(gateway.server, mode=mode) as client:
        assert await names_of(client) == META
        found = await say(client, "search_tools", query="make an invoice")
        described = json.loads(await say(client, "describe_tool", names=["many__handle_7"]))
        result = await client.call_tool("call_tool", {"name": "many__handle_7", "arguments": {"case": "x"}})
    assert "- many__create_invoice(): Create an invoice." in found
    assert described["inputSchema"]["required"] == ["case"]
    assert described["outputSchema"] == {"type": "object"}
    assert result.structured_content == {"tool": "handle_7", "arguments": {"case": "x"}}


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_that_was_not_found_runs_by_its_own_name(mode: str) -> None:
    dial = host({"many": many_tools()}, "many/*")
    async with running(dial, SEARCH) as gateway, Client(gateway.server, mode=mode) as client:
        result = await client.call_tool("many__create_invoice", {})
    assert result.structured_content == {"tool": "create_invoice", "arguments": {}}


async def test_rules_and_the_audit_log_name_the_tool_that_is_called() -> None:
    entries = Entries()
    dial = host({"many": many_tools()}, "many/create_invoice", audit=entries)
    async with running(dial, SEARCH) as gateway, Client(gateway.server) as client:
        allowed = await client.call_tool("call_tool", {"name": "many__create_invoice"})
        denied = await client.call_tool("call_tool", {"name": "many__handle_1", "arguments": {"case": "x"}})
    assert not allowed.is_error
    assert denied.is_error
    assert "many/handle_1" in text_of(denied)
    assert {(entry.server, entry.tool) for entry in entries} == {("many", "create_invoice"), ("many", "handle_1")}


async def test_arguments_are_checked_against_the_schema_of_the_tool() -> None:
    dial = host({"many": many_tools()}, "many/*")
    async with running(dial, SEARCH) as gateway, Client(gateway.server) as client:
        missing = await client.call_tool("call_tool", {"name": "many__handle_1"})
        as_text = await client.call_tool("call_tool", {"name": "many__handle_1", "arguments": '{"case": "x"}'})
        without_name = await client.call_tool("call_tool", {"arguments": {}})
    assert missing.is_error
    assert "case" in text_of(missing)
    assert as_text.structured_content == {"tool": "handle_1", "arguments": {"case": "x"}}
    assert without_name.is_error
    assert "name" in text_of(without_name)


async def test_a_tool_that_does_not_exist_is_an_error_that_names_the_nearest_tool() -> None:
    dial = host({"many": many_tools()}, "many/*")
    async with running(dial, SEARCH) as gateway, Client(gateway.server) as client:
        for name in ("create_invoices", "call_tool"):
            result = await client.call_tool("call_tool", {"name": name})
            assert result.is_error
            assert f"There is no tool '{name}'" in text_of(result)
        assert "'many__create_invoice'" in text_of(await client.call_tool("call_tool", {"name": "create_invoice"}))
        described = await client.call_tool("describe_tool", {"names": ["nothing"]})
    assert described.is_error


async def test_the_tools_of_pinned_servers_are_listed_too() -> None:
    servers = {"many": many_tools(), "own": {**entry("Server"), "pinned": True}}
    async with running(host(servers), SEARCH) as gateway, Client(gateway.server) as client:
        names = await names_of(client)
    assert names == [*META, "own__echo"]


@pytest.mark.parametrize(("bytes_", "is_searched"), [(1_000_000, False), (10_000, True)])
async def test_auto_searches_if_the_definitions_are_large(bytes_: int, is_searched: bool) -> None:
    dial = host({"many": many_tools()}, limits=Limits(max_tool_bytes=bytes_))
    options = GatewayOptions(listing=ToolListing.AUTO)
    async with running(dial, options) as gateway, Client(gateway.server) as client:
        assert (await names_of(client) == META) is is_searched


async def test_the_list_changes_when_the_definitions_become_large() -> None:
    changed = anyio.Event()

    async def on_message(message: object) -> None:
        if "ToolListChanged" in type(message).__name__:
            changed.set()

    dial = host({"sums": calculator()}, limits=Limits(max_tool_bytes=10_000))
    options = GatewayOptions(listing=ToolListing.AUTO)
    async with (
        running(dial, options) as gateway,
        Client(gateway.server, mode="legacy", message_handler=on_message) as client,
    ):
        assert await names_of(client) == ["sums__add", "sums__fail"]
        await dial.add_server("many", many_tools())
        with anyio.fail_after(60):
            await changed.wait()
        assert await names_of(client) == META


async def test_answers_name_servers_that_have_failed() -> None:
    servers = {"sums": calculator(), "broken": {"command": "no-such-program-here"}}
    async with running(host(servers), SEARCH) as gateway, Client(gateway.server) as client:
        answers = [
            await say(client, "search_tools", query="add numbers"),
            await say(client, "search_tools", server="broken"),
            await say(client, "search_tools"),
            text_of(await client.call_tool("call_tool", {"name": "broken__x"})),
        ]
    assert all("'broken' (" in answer for answer in answers)
    assert "sums__add(a, b): Add two numbers." in answers[0]


async def test_a_search_can_be_for_one_server_or_for_a_list_of_its_tools() -> None:
    dial = host({"many": many_tools(), "sums": calculator()})
    async with running(dial, SEARCH) as gateway, Client(gateway.server) as client:
        servers = await say(client, "search_tools")
        listed = await say(client, "search_tools", server="many")
        found = await say(client, "search_tools", query="add handle", server="sums", limit=1)
    assert servers == "There are 303 tools. Servers: many (301), sums (2)."
    described, named = listed.split("\nOthers, which can be called by name: ")
    assert len([line for line in described.splitlines() if line.startswith("- many__")]) == 20
    assert named.startswith("many__handle_")
    assert len(named) <= 401
    assert [line for line in found.splitlines() if line.startswith("- ")] == ["- sums__add(a, b): Add two numbers."]


async def test_answers_are_bounded() -> None:
    server = MCPServer("long")
    for index in range(30):
        server.add_tool(lambda text: text, name=f"tool_{index}", description=f"Describe. {'x' * 50_000}")
    async with running(host({"long": server}), SEARCH) as gateway, Client(gateway.server) as client:
        found = await say(client, "search_tools", query="describe", limit=20)
        described = await say(client, "describe_tool", names=["long__tool_1"])
        too_many = await client.call_tool("describe_tool", {"names": ["long__tool_1"] * (MAX_DESCRIBED + 1)})
    assert len(found) < 20 * 300
    assert len(described) < MAX_DEFINITION + 100
    assert too_many.is_error


async def test_the_tool_that_calls_claims_the_worst_and_the_tools_that_read_only_read() -> None:
    async with running(host({"sums": calculator()}), SEARCH) as gateway, Client(gateway.server) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    calls, *reads = [tools[name] for name in ("call_tool", "search_tools", "describe_tool")]
    assert calls is not None
    assert (calls.read_only_hint, calls.destructive_hint, calls.open_world_hint) == (False, True, True)
    assert [annotations is not None and annotations.read_only_hint for annotations in reads] == [True, True]


async def test_long_results_of_called_tools_are_shortened_and_read_on() -> None:
    server = MCPServer("long")
    server.add_tool(lambda: "\n".join(map(str, range(5_000))), name="numbers", description="Return numbers.")
    options = GatewayOptions(listing=ToolListing.SEARCH, max_result_chars=1_000)
    async with running(host({"long": server}, "long/*"), options) as gateway, Client(gateway.server) as client:
        assert await names_of(client) == [*META, "read_result"]
        shown = await say(client, "call_tool", name="long__numbers")
        id_ = shown.partition('read_result(id="')[2][:12]
        found = await say(client, "read_result", id=id_, search="4321")
    assert len(shown) < 1_300
    assert "4321" in found


@pytest.mark.parametrize("names", [[], "x", [1], None])
async def test_wrong_arguments_are_errors_of_the_call(names: object) -> None:
    async with running(host({"sums": calculator()}), SEARCH) as gateway, Client(gateway.server) as client:
        result = await client.call_tool("describe_tool", {"names": names})
    assert result.is_error
    assert "do not fit" in text_of(result)
