"""What servers ask during calls of clients of `/mcp`, while conversations use the same servers."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp_types import ElicitResult

from dial_client.serve import McpOptions
from tests.support.gateway_clients import Person, text_of
from tests.support.gateways import MODES
from tests.support.http_service import HttpService, serve
from tests.support.mcp_clients import mcp_client
from tests.support.program import python_server
from tests.support.servers.launch import HERE

pytestmark = pytest.mark.anyio
YES = ElicitResult(action="accept", content={"yes": True})
TOOLS = ("returns", "samples_too", "roots")
PLAIN = {"tool_calls": [{"name": tool, "arguments": {}} for tool in TOOLS]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def answer_on_page(service: HttpService) -> None:
    """Answer the first question on the page."""
    while not (questions := (await service.json("GET", "/questions"))["questions"]):  # noqa: ASYNC110 - the service is asked
        await anyio.sleep(0.02)
    answer = {"action": "accept", "content": {"yes": True}}
    await service.json("POST", f"/questions/{questions[0]['id']}", 204, json=answer)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_two_clients_and_a_conversation_are_each_asked_about_their_own_calls(era: str) -> None:
    servers = {"shop": python_server(HERE / "questions.py", protocol=era)}
    ann, bob = (Person(YES, name=name) for name in ("ann", "bob"))
    results: dict[str, list[str]] = {}

    async with (
        serve([PLAIN, "Done."], servers, allow=["shop/*"], mcp=McpOptions()) as service,
        mcp_client(service, MODES[0], **ann.options()) as hers,
        mcp_client(service, MODES[1], **bob.options()) as his,
    ):

        async def work(client: Any, name: str) -> None:
            results[name] = [text_of(await client.call_tool(f"shop__{tool}")) for tool in TOOLS * 2]

        async def chat() -> None:
            turn = await service.json(
                "POST", f"{await service.conversation()}/chat", json={"text": "Go!", "stream": False}
            )
            results["turn"] = [call["content"] for call in turn["tool_calls"]]

        async with anyio.create_task_group() as group:
            group.start_soon(chat)
            group.start_soon(answer_on_page, service)
            for client, name in ((hers, "ann"), (his, "bob")):
                group.start_soon(work, client, name)
    for person in (ann, bob):
        name = person.name
        expected = ["action='accept' data=Sure(yes=True)", f"a word of {name}", f"{name}=file:///{name}"]
        assert results[name] == expected * 2
        assert len(person.asked) == len(person.sampled) == person.roots_asked == 2
    # The conversation has its own answers: the page for forms, no model and no folders for servers.
    asked, sampled, roots = results["turn"]
    assert "accept" in asked
    assert ("The host does not support sampling here" if era == "legacy" else "sampling is not enabled") in sampled
    assert "file:" not in roots
