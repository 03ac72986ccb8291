"""Tools for the model that list and read resources of servers, if the user enables them."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import Approval, DialClient, Limits, Message, Turn
from dial_client.testing import ScriptedProvider
from tests.inner import ApprovalPolicy, Failure, ImagePart, Protocol, read_server_mapping
from tests.support.fakes import tool_named
from tests.support.program import python_server
from tests.support.servers.launch import HERE, python_script, raw
from tests.support.servers.library import PNG, Library, library

pytestmark = pytest.mark.anyio


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def turn_of(*replies: Any, servers: dict[str, Any] | None = None, **options: Any) -> tuple[Turn, list[str]]:
    """Run a turn; return the turn and the names of the tools that its last round offered."""
    model = ScriptedProvider([*replies, "Done."])
    options = {"resource_tools": True} | options
    async with DialClient(model, servers=servers or {"books": library()}, **options) as dial:
        turn = await dial.run([Message.user("What is there to read?")])
    return turn, [tool.name for tool in model.requests[-1].tools]


async def test_the_model_lists_and_reads_resources() -> None:
    turn, offered = await turn_of(
        calls("list_resources"),
        calls("list_resources", server="books"),
        calls("read_resource", server="books", uri="book://1"),
        calls("read_resource", server="books", uri="book://cover"),
    )
    every, of_one, text, image = (record.result for record in turn.tool_calls)
    assert every.content == of_one.content
    assert "- books: book://1 (A book, text/plain, 15 bytes)" in str(every.content)
    assert "- books: book://{shelf}/{number} (shelves, put in shelf, number: Any book of a shelf.)" in str(
        every.content
    )
    assert text.content == "[resource book://1]\nThe first book."
    assert image.content == (ImagePart(PNG, "image/png"),)
    assert offered[-2:] == ["list_resources", "read_resource"]


@pytest.mark.parametrize(
    ("arguments", "failure", "error"),
    [
        ({"server": "books", "uri": "book://none"}, Failure.SERVER, "there is no book book://none"),
        ({"server": "private", "uri": "book://1"}, Failure.BAD_ARGUMENTS, "books"),
        ({"uri": "book://1"}, Failure.BAD_ARGUMENTS, "server"),
    ],
)
async def test_the_model_gets_the_reason_why_a_resource_cannot_be_read(
    arguments: Any, failure: Failure, error: str
) -> None:
    turn, _ = await turn_of(calls("read_resource", **arguments))
    [record] = turn.tool_calls
    assert record.result.failure is failure
    assert error in str(record.result.content)


async def test_only_resources_of_servers_that_enable_it_can_be_read() -> None:
    entry = python_server(HERE / "library.py", "stdio", resources="tools")
    private = library()
    turn, _ = await turn_of(
        calls("list_resources"),
        calls("read_resource", server="private", uri="book://1"),
        servers={"books": read_server_mapping("books", entry), "private": private},
        resource_tools=False,
    )
    listed, read = (record.result for record in turn.tool_calls)
    assert "- books: book://1" in str(listed.content)
    assert "private" not in str(listed.content)
    assert not read.success


async def test_resource_tools_are_not_offered_by_default() -> None:
    _, offered = await turn_of(resource_tools=False)
    assert "read_resource" not in offered
    _, offered = await turn_of(servers={"off": raw(enabled=False)})
    assert offered == []


async def test_server_tools_of_the_same_names_do_not_replace_resource_tools() -> None:
    it = Library()
    it.tools = ["read_resource", "list_resources"]
    _, offered = await turn_of(servers={"books": library(it)})
    assert offered == ["books__list_resources", "books__read_resource", "list_resources", "read_resource"]


async def test_a_failed_server_does_not_affect_the_list_of_resources() -> None:
    servers = {"books": library(), "gone": raw("ExitsAtOnce")}
    turn, _ = await turn_of(
        calls("list_resources"), calls("read_resource", server="gone", uri="book://1"), servers=servers
    )
    listed, read = (record.result for record in turn.tool_calls)
    assert "- books: book://1" in str(listed.content)
    assert "the database is missing" in str(read.content)


async def test_a_long_resource_is_shortened_like_a_tool_result() -> None:
    limits = Limits(max_result_chars=1000)
    turn, offered = await turn_of(calls("read_resource", server="books", uri="book://long"), limits=limits)
    text = str(turn.tool_calls[0].result.content)
    assert len(text) < 1500
    assert 'read_result(id="' in text
    assert "read_result" in offered


async def test_resource_tools_need_no_approval_but_can_be_denied() -> None:
    async def no(*asked: object) -> Approval:
        return Approval("deny")

    turn, _ = await turn_of(calls("read_resource", server="books", uri="book://1"), approve=no)
    assert turn.tool_calls[0].result.success
    turn, _ = await turn_of(
        calls("read_resource", server="books", uri="book://1"), approval=ApprovalPolicy(deny=["read_resource"])
    )
    assert turn.tool_calls[0].result.failure is Failure.DENIED


# Properties of tools, and changes of tools


async def test_an_announced_tool_is_offered_in_the_next_round() -> None:
    for protocol in (Protocol.AUTO, Protocol.LEGACY):
        servers = {"books": python_script("library.py", "stdio", protocol=protocol)}
        turn, offered = await turn_of(calls("invent"), calls("invented"), servers=servers, resource_tools=False)
        assert [record.result.success for record in turn.tool_calls] == [True, True]
        assert "invented" in offered


async def test_annotations_icons_and_output_schema_of_a_tool_are_kept() -> None:
    from mcp.server.lowlevel import Server
    from mcp_types import Icon, ListToolsResult, ToolAnnotations

    hints = ToolAnnotations(title="Cut it", read_only_hint=False, destructive_hint=True, open_world_hint=False)
    icons = [Icon(src="https://x.test/a.png")]
    tools = [tool_named("cut", annotations=hints, icons=icons, output_schema={"type": "object"}), tool_named("plain")]

    async def listed(*asked: object) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async with DialClient(servers={"it": Server("it", on_list_tools=listed)}) as dial:
        cut, plain = dial.tools
    assert (cut.title, cut.destructive, cut.open_world, cut.idempotent, cut.read_only) == (
        "Cut it",
        True,
        False,
        False,
        False,
    )
    assert (cut.icons[0].src, cut.output_schema) == ("https://x.test/a.png", {"type": "object"})
    assert (plain.destructive, plain.open_world, plain.icons) == (None, None, ())
