"""MCP Apps as data for a program that shows them: capability, resources, tool calls with approvals, stored messages."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import (
    AppOpened,
    Approval,
    ApprovalPolicy,
    Callbacks,
    ConversationManager,
    DialClient,
    ServerError,
    ToolCallFinished,
    Turn,
)
from tests.inner import MemoryStore, ScriptedProvider
from tests.support.servers.app_server import COUNTER, HOSTILE, REMOTE, build

pytestmark = [pytest.mark.anyio, pytest.mark.once]

SHOW = {"tool_calls": [{"name": "show_counter", "arguments": {"start": 3}}]}


def client(*replies: Any, apps: bool = True, **options: Any) -> DialClient:
    """Return a client with the server of apps and a scripted model."""
    callbacks = Callbacks(apps=apps)
    return DialClient(ScriptedProvider(list(replies)), servers={"apps": build()}, callbacks=callbacks, **options)


async def deny(*_: Any) -> Approval:
    return Approval("deny", "not that one")


@pytest.mark.parametrize("apps", [True, False])
async def test_the_extension_is_announced_only_by_a_program_that_shows_apps(apps: bool) -> None:
    async with client(apps=apps) as dial:
        announced = str((await dial.call("capabilities", {})).content)
    assert ("io.modelcontextprotocol/ui" in announced) is apps
    assert ("text/html;profile=mcp-app" in announced) is apps


async def test_a_turn_has_the_app_of_a_call_with_its_arguments_and_the_whole_result() -> None:
    async with client(SHOW, "Done.") as dial:
        turn = await dial.run("Count")
    [app] = turn.apps
    assert (app.server, app.tool, app.uri, app.arguments) == ("apps", "show_counter", COUNTER, {"start": 3})
    assert app.result is not None
    assert app.result["structuredContent"] == {"count": 3, "note": None}
    assert app.result["_meta"]["seen"] == "by the app"
    assert turn.tool_calls[0].result.content == "The counter is at 3."
    assert Turn.from_dict(turn.to_dict()) == turn


async def test_a_client_that_shows_no_apps_gets_the_text_of_the_result() -> None:
    async with client(SHOW, "Done.", apps=False) as dial:
        turn = await dial.run("Count")
        assert (await dial.call("show_counter", {"start": 1})).app is None
    assert turn.apps == ()
    assert turn.tool_calls[0].result.content == "The counter is at 3."


async def test_an_app_opens_only_after_its_call_was_approved() -> None:
    async with client(SHOW, "Done.") as dial:
        names = [type(event) async for event in dial.stream("Count") if isinstance(event, AppOpened | ToolCallFinished)]
    assert names == [AppOpened, ToolCallFinished]
    async with client(SHOW, "Done.", approve=deny) as dial:
        events = [event async for event in dial.stream("Count")]
    assert not any(isinstance(event, AppOpened) for event in events)


async def test_tools_with_app_visibility_are_neither_offered_to_the_model_nor_callable_by_it() -> None:
    call = {"tool_calls": [{"name": "increase", "arguments": {}}]}
    for apps in (True, False):
        async with client(call, "Done.", apps=apps) as dial:
            assert "increase" not in [tool.name for tool in dial.tools]
            assert "reset" in [tool.name for tool in dial.tools]
            turn = await dial.run("Increase")
        assert "There is no tool" in str(turn.tool_calls[0].result.content)


async def test_an_app_calls_tools_with_app_visibility_of_its_own_server() -> None:
    async with client() as dial:
        await dial.call("show_counter", {"start": 5})
        assert (await dial.apps.call("apps", "increase", {"by": 2}))["structuredContent"] == {"count": 7}
        for tool in ("reset", "no_such_tool"):
            with pytest.raises(ServerError, match="no tool"):
                await dial.apps.call("apps", tool, {})
        with pytest.raises(ServerError):
            await dial.apps.call("elsewhere", "increase", {})


async def test_a_tool_call_by_an_app_needs_approval_like_a_tool_call_by_the_model() -> None:
    asked: list[str] = []

    async def approve(call: Any, tool: Any, context: Any) -> Approval:
        asked.append(f"{context.server}/{tool.tool}")
        return Approval("deny", "not that one")

    async with client(approve=approve) as dial:
        result = await dial.apps.call("apps", "increase", {})
        assert (asked, result["isError"]) == (["apps/increase"], True)
        assert "not that one" in result["content"][0]["text"]
    async with client(approve=approve, approval=ApprovalPolicy(deny=["apps/*"])) as dial:
        assert (await dial.apps.call("apps", "increase", {}))["isError"]
    assert len(asked) == 1


async def test_arguments_of_an_app_are_checked_against_the_schema() -> None:
    async with client() as dial:
        result = await dial.apps.call("apps", "increase", {"by": {"not": "a number"}})
    assert result["isError"]


async def test_the_resource_of_an_app_has_its_html_and_its_allowed_origins() -> None:
    async with client() as dial:
        counter = await dial.apps.read("apps", COUNTER)
        remote = await dial.apps.read("apps", REMOTE)
        assert "<title>Counter</title>" in counter.html
        assert counter.policy.origins == ()
        assert remote.policy.connect == ("https://api.evil.test", "http://127.0.0.1:*")
        assert remote.policy.resource == ("https://cdn.evil.test",)
        assert remote.left_out == ("*",)
        for uri in ("ui://apps/plain.html", "ui://apps/large.html", "ui://apps/missing.html", "data://apps/words"):
            with pytest.raises(ServerError):
                await dial.apps.read("apps", uri)
        words = await dial.apps.read_resource("apps", "data://apps/words")
        assert words["contents"][0]["text"] == "words of the server"
        described = dial.apps.describe_tool("apps", "show_hostile")
        assert described is not None
        assert described["_meta"]["ui"]["resourceUri"] == HOSTILE


async def test_the_app_of_a_result_is_stored_in_the_conversation_and_not_imported_from_a_file() -> None:
    async with client(SHOW, "Done.") as dial:
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        await manager.chat(conversation.id, "Count")
        stored = await manager.get(conversation.id)
        [app] = [message.app for message in stored.messages if message.app is not None]
        assert (app.uri, app.arguments) == (COUNTER, {"start": 3})
        imported = await manager.import_json(await manager.export(conversation.id))
        assert not any(message.app for message in imported.messages)
