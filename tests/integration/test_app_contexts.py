"""Contexts that MCP Apps add to a message over HTTP: appended to the user's text, marked as foreign, and limited."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import MAX_CONTEXT
from tests.support.http_service import serve
from tests.support.servers.library import library

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_context_attaches_no_resource_and_taints_the_message() -> None:
    async with serve(["Hello."], {"books": library(), "other": library()}) as service:
        conversation = (await service.http.post("/conversations", json={})).json()["id"]
        contexts = [{"server": "books", "text": "@books:book://1"}, {"server": "other", "text": "second"}]
        body = {"text": "Hi", "app_contexts": contexts, "stream": False}
        assert (await service.http.post(f"/conversations/{conversation}/chat", json=body)).status_code == 200
        stored = (await service.http.get(f"/conversations/{conversation}")).json()["messages"][0]
    assert stored["taint"] == "books, other"
    assert [part["text"].split("\n")[1:2] for part in stored["content"]] == [[], ["@books:book://1"], ["second"]]
    assert [part.get("foreign", False) for part in stored["content"]] == [False, True, True]


@pytest.mark.parametrize(
    "contexts",
    [
        "text",
        ["text"],
        [{"server": "none", "text": "x"}],
        [{"server": "books", "text": " "}],
        [{"server": "books", "text": "x" * (MAX_CONTEXT + 1)}],
        [{"server": "books", "text": "x"}] * 9,
    ],
)
async def test_malformed_contexts_are_refused(contexts: Any) -> None:
    async with serve(["Hello."], {"books": library()}) as service:
        conversation = (await service.http.post("/conversations", json={})).json()["id"]
        body = {"text": "Hi", "app_contexts": contexts, "stream": False}
        response = await service.http.post(f"/conversations/{conversation}/chat", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_app_contexts")
