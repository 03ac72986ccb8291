"""A question that the endpoint refuses stays in the conversation, and is left out of later requests."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import DialClient, MemoryStore, ProviderError, Role
from tests.inner import Regeneration, ScriptedProvider
from tests.support.managed_conversations import managed

pytestmark = pytest.mark.anyio

REFUSED = {"error": {"message": "the prompt was filtered", "status": 400}}


def list_texts(provider: ScriptedProvider) -> list[list[str]]:
    """Return the texts of the messages of each request."""
    return [[message.text for message in request.messages] for request in provider.requests]


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
async def test_a_refused_question_is_left_out_of_later_requests_and_stays_visible(status: int) -> None:
    refused = {"error": {"message": "the prompt was filtered", "status": status}}
    provider = ScriptedProvider(["Hi.", refused, refused, "Fine."])
    async with managed(MemoryStore(), provider) as manager:
        conversation = await manager.create()
        await manager.chat(conversation.id, "Hello")
        for question in ("status 400", "status 400 again"):
            with pytest.raises(ProviderError, match="later requests leave this question out, unless it is asked again"):
                await manager.chat(conversation.id, question)
        await manager.chat(conversation.id, "How are you?")
        stored = await manager.get(conversation.id)

    assert list_texts(provider)[1:] == [
        ["Hello", "Hi.", "status 400"],
        ["Hello", "Hi.", "status 400 again"],
        ["Hello", "Hi.", "How are you?"],
    ]
    texts = [message.text for message in stored.messages]
    assert texts == ["Hello", "Hi.", "status 400", "status 400 again", "How are you?", "Fine."]


async def test_a_refused_question_that_is_asked_again_is_sent_again_from_then_on() -> None:
    provider = ScriptedProvider([REFUSED, "Hi.", "Fine."])
    async with managed(MemoryStore(), provider) as manager:
        conversation = await manager.create()
        with pytest.raises(ProviderError):
            await manager.chat(conversation.id, "Hello")
        await manager.chat(conversation.id, Regeneration())
        await manager.chat(conversation.id, "How are you?")

    assert list_texts(provider) == [["Hello"], ["Hello"], ["Hello", "Hi.", "How are you?"]]


@pytest.mark.parametrize(
    "error",
    [
        {"message": "too many requests", "status": 429},
        {"message": "broken", "status": 500},
        {"message": "gone", "code": "connection"},
    ],
)
async def test_a_question_that_only_failed_is_sent_with_the_next_question(error: Any) -> None:
    provider = ScriptedProvider([{"error": error}, "Fine."])
    async with managed(MemoryStore(), provider) as manager:
        conversation = await manager.create()
        with pytest.raises(ProviderError) as caught:
            await manager.chat(conversation.id, "Hello")
        await manager.chat(conversation.id, "How are you?")

    assert "asked again" not in str(caught.value)
    assert list_texts(provider)[1] == ["Hello", "How are you?"]


async def test_a_refused_exchange_with_calls_is_left_out_as_a_whole() -> None:
    def count() -> int:
        """Count."""
        return 1

    provider = ScriptedProvider([{"tool_calls": [{"name": "count", "arguments": {}}]}, REFUSED, "Fine."])
    async with DialClient(provider, tools=[count]) as dial:
        chat = dial.conversation()
        with pytest.raises(ProviderError, match="leave this question out"):
            await chat.send("Count.")
        await chat.send("How are you?")

    roles = [message.role for message in chat.messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER, Role.ASSISTANT]
    assert list_texts(provider)[2] == ["How are you?"]


async def test_a_summary_is_written_without_the_refused_question() -> None:
    provider = ScriptedProvider(["Hi.", REFUSED, "Fine.", "A summary."])
    async with managed(MemoryStore(), provider) as manager:
        conversation = await manager.create()
        await manager.chat(conversation.id, "Hello")
        with pytest.raises(ProviderError):
            await manager.chat(conversation.id, "SECRET")
        await manager.chat(conversation.id, "How are you?")
        await manager.compact(conversation.id, keep=0)

    assert "Hello" in str(provider.requests[-1])
    assert "SECRET" not in str(provider.requests[-1])
