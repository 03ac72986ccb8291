"""The turns of conversations as server-sent events, for a web application."""

from __future__ import annotations

import pytest

from dial_client import ConversationManager, ConversationNotFound, DialClient, MemoryStore, Message
from dial_client.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


async def test_a_manager_streams_the_turn_of_a_conversation_as_server_sent_events() -> None:
    async with DialClient(ScriptedProvider(["Hello, Ada.", "Ada."])) as dial:
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        first = [text async for text in manager.stream_response(conversation.id, "I am Ada.")]
        await manager.chat(conversation.id, "Who am I?")
        stored = (await manager.get(conversation.id)).messages
    assert first[-1] == "data: [DONE]\n\n"
    assert any('"content": "Hello, Ada."' in text or '"content":"Hello, Ada."' in text for text in first)
    assert any(text.startswith("event: done\n") for text in first)
    assert stored[:2] == (Message.user("I am Ada."), Message.assistant("Hello, Ada."))


async def test_an_error_of_the_turn_is_an_event_and_a_missing_conversation_an_exception() -> None:
    async with DialClient(ScriptedProvider([{"error": {"message": "busy", "status": 400}}])) as dial:
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        texts = [text async for text in manager.stream_response(conversation.id, "Hi")]
        assert [text.partition("\n")[0] for text in texts][-2:] == ["event: error", "data: [DONE]"]
        with pytest.raises(ConversationNotFound):
            await anext(manager.stream_response("missing", "Hi"))
