"""Approvals over HTTP: permanent grants survive a restart, and untrusted content requires approval despite grants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dial_client.testing import ScriptedProvider
from tests.integration.test_human_input import chat_events, results, stream_chat, until
from tests.support.http_service import MODEL, serve
from tests.support.servers.launch import raw

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def test_a_permanent_grant_survives_a_restart(tmp_path: Path) -> None:
    servers, replies = {"it": raw()}, [calls("echo"), "Done."]
    async with chat_events(replies, servers, grants=tmp_path) as (server, events):
        asked = (await until(events, "approval")).data["id"]
        await server.json("POST", f"/approvals/{asked}", 204, json={"decision": "always"})
        assert len(await results(events)) == 1
    async with chat_events(replies, servers, grants=tmp_path) as (_, events):
        kinds = [event.name async for event in events]
    assert "approval" not in kinds


async def test_a_session_grant_does_not_approve_calls_after_untrusted_content() -> None:
    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "mail": raw()}
    first, second, third = (calls("mail__echo", n=n) for n in (1, 2, 3))
    async with chat_events([first, calls("web__echo"), second, third, "Done."], servers) as (server, events):
        why = []
        for answer in ("session", "session", "deny"):
            asked = (await until(events, "approval")).data
            why.append(asked["why_asked"])
            await server.json("POST", f"/approvals/{asked['id']}", 204, json={"decision": answer})
        outcomes = await results(events)
    assert why[0] == ""
    assert why[1] == why[2] == "the conversation holds untrusted content from web/echo, and this tool can act or send"
    assert "not allow" in outcomes[-1]


async def test_without_an_approver_calls_after_untrusted_content_are_denied() -> None:
    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "mail": raw(auto_approve=("*",))}
    model = ScriptedProvider([calls("web__echo"), calls("mail__echo"), "Done."])
    async with serve(model, servers) as server:
        request = {"model": MODEL, "messages": [{"role": "user", "content": "Go!"}]}
        await server.json("POST", "/v1/chat/completions", json=request)
    last = model.requests[-1].messages[-1]
    assert "untrusted content from web/echo" in last.text
    assert "no user is available to approve the call" in last.text


async def test_an_approval_after_untrusted_content_does_not_apply_to_another_conversation() -> None:
    servers = {"web": raw(untrusted=("*",), auto_approve=("*",)), "mail": raw()}
    replies = [calls("web__echo"), calls("mail__echo", n=1), "Done.", calls("mail__echo", n=2), "Done."]
    async with serve(replies, servers) as server:
        for answer in ("session", "deny"):
            async with stream_chat(server, await server.conversation()) as (events, _):
                asked = (await until(events, "approval")).data
                await server.json("POST", f"/approvals/{asked['id']}", 204, json={"decision": answer})
                outcomes = await results(events)
    assert "not allow" in outcomes[-1]
