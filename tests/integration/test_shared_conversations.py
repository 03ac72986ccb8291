"""Conversations that are shared by a link, and marks of the list: pinned and archived conversations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server import MCPServer

from tests.inner import Delta, MemoryStore, ModelRequest, ScriptedProvider, SQLStore
from tests.support.http_service import HttpService, serve

pytestmark = pytest.mark.anyio

notes = MCPServer("notes")
CALL = {"text": "I look.", "reasoning": "a thought", "tool_calls": [{"name": "read", "arguments": {"name": "secret"}}]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@notes.tool()
def read(name: str) -> str:
    """Read a note."""
    return f"the {name} of a server"


async def ask(service: HttpService, path: str, text: str) -> None:
    content = [{"type": "text", "text": text}, IMAGE]
    await service.json("POST", f"{path}/chat", json={"content": content, "stream": False})


async def read_link(service: HttpService, link: dict[str, Any], status: int = 200) -> Any:
    """Read a shared conversation as somebody without the token."""
    page, _, key = link["address"].partition("#")
    assert page == "shared"
    async with httpx2.AsyncClient(base_url=service.url, trust_env=False, timeout=60) as reader:
        response = await reader.get("/shared/conversation", headers={"x-share-key": key})
        # The key opens nothing else.
        for path in ("/conversations", f"/conversations/{key.partition('.')[0]}", "/tools", "/audit"):
            refused = await reader.get(path, headers={"x-share-key": key, "authorization": f"Bearer {key}"})
            assert refused.status_code == 401
    assert response.status_code == status, response.text
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "noindex" in response.headers["x-robots-tag"]
    return response.json()


async def test_a_link_shows_the_questions_and_answers_of_that_time_and_nothing_else() -> None:
    async with serve([CALL, "Found.", "Later."], {"notes": notes}, allow=["*"]) as service:
        path = await service.conversation()
        await service.json("PATCH", path, json={"settings": {"system": "Be brief."}})
        await ask(service, path, "Read it")
        link = (await service.json("POST", f"{path}/share", 201, json={}))["link"]
        await ask(service, path, "And now?")
        shared = await read_link(service, link)
        assert shared["title"] == "Read it"
        assert shared["messages"] == [
            {"role": "user", "content": "Read it"},
            {"role": "assistant", "content": "I look."},
            {"role": "assistant", "content": "Found."},
        ]
        assert (await service.json("GET", f"{path}/share"))["link"] == {**link, "is_current": False}
        copy = await service.json("POST", f"{path}/fork", 201, json={})
        assert (await service.json("GET", f"/conversations/{copy['id']}/share"))["link"] is None


async def test_calls_and_attachments_are_shown_only_if_the_owner_says_so() -> None:
    async with serve([CALL, "Found."], {"notes": notes}, allow=["*"]) as service:
        path = await service.conversation()
        await ask(service, path, "Read it")
        wish = {"tools": True, "attachments": True}
        link = (await service.json("POST", f"{path}/share", 201, json=wish))["link"]
        question, call, result, _ = (await read_link(service, link))["messages"]
    assert [part["type"] for part in question["content"]] == ["text", "image"]
    assert call["tool_calls"][0]["arguments"] == {"name": "secret"}
    assert result["content"] == "the secret of a server"


async def test_a_link_ends_when_it_is_ended_replaced_or_its_conversation_is_deleted() -> None:
    async with serve(["Hello."]) as service:
        path = await service.conversation()
        await ask(service, path, "Hi")
        first = (await service.json("POST", f"{path}/share", 201))["link"]
        second = (await service.json("POST", f"{path}/share", 201))["link"]
        gone = await read_link(service, first, 404)
        assert await read_link(service, {"address": "shared#no-such-conversation.key"}, 404) == gone
        await service.json("DELETE", f"{path}/messages/0")
        assert (await read_link(service, second))["messages"] == []
        await service.json("DELETE", f"{path}/share", 204)
        assert await read_link(service, second, 404) == gone
        third = (await service.json("POST", f"{path}/share", 201))["link"]
        await service.json("DELETE", path, 204)
        await read_link(service, third, 404)


async def test_a_service_without_links_has_no_page_for_them() -> None:
    async with serve(["Hello."], shares=False) as service:
        path = await service.conversation()
        await service.json("POST", f"{path}/share", 404)
        await service.json("GET", "/shared", 404)
        assert (await service.json("GET", "/conversations"))["can_share"] is False


async def test_a_model_writes_the_title_without_tools_and_its_cost_is_counted() -> None:
    answer = {"text": "It is noon.", "usage": {"input_tokens": 10, "output_tokens": 2}}
    title = {"text": '"The time of day"\n', "usage": {"input_tokens": 7, "output_tokens": 1}}
    requests: list[ModelRequest] = []
    written = anyio.Event()

    class Recording(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            requests.append(request)
            async for event in super().generate(request):
                yield event

    class Renaming(MemoryStore):
        async def rename(self, conversation_id: str, title: str) -> None:
            await super().rename(conversation_id, title)
            written.set()

    model = Recording([answer, title, "One."])
    async with serve(model, {"notes": notes}, title_model=model, store=Renaming()) as service:
        path = await service.conversation()
        await service.json("POST", f"{path}/chat", json={"text": "What time is it?", "stream": False})
        await written.wait()
        assert (await service.json("GET", path))["title"] == "The time of day"
        usage = (await service.json("GET", f"{path}/usage"))["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (17, 3)
        assert requests[1].tools == ()
        assert "What time is it?" in requests[1].messages[0].text
        await service.json("POST", f"{path}/chat", json={"text": "Again?", "stream": False})
        assert len(requests) == 3


@pytest.mark.parametrize("has_database", [False, True])
async def test_pinned_and_archived_conversations_are_listed_apart(tmp_path: Any, has_database: bool) -> None:
    store = SQLStore.sqlite(tmp_path / "c.db") if has_database else MemoryStore()
    async with serve([], store=store) as service:
        ids = [(await service.json("POST", "/conversations", 201, json={"title": name}))["id"] for name in "abc"]
        await service.json("PATCH", f"/conversations/{ids[0]}", json={"pinned": True})
        await service.json("PATCH", f"/conversations/{ids[1]}", json={"archived": True})
        await service.json("PATCH", f"/conversations/{ids[1]}", 400, json={"archived": 1})

        async def list_titles(query: str) -> str:
            found = (await service.json("GET", f"/conversations?{query}"))["conversations"]
            return "".join(summary["title"] for summary in found)

        assert await list_titles("pinned=true&archived=false") == "a"
        assert await list_titles("pinned=false&archived=false") == "c"
        assert await list_titles("archived=true") == "b"
        assert await list_titles("search=a") == "a"
        await service.json("PATCH", f"/conversations/{ids[0]}", json={"pinned": False})
        assert await list_titles("archived=false") == "ca"
