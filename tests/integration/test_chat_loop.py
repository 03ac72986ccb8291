"""`DialClient.conversation`: the ordinary chat loop, in memory and in every kind of store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dial_client import ConfigError, DialClient, Finished, Message, ProviderError, SQLStore, TextDelta
from dial_client.testing import ScriptedProvider
from tests.inner import ConversationStore
from tests.support.clients import ADD, client

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


async def test_each_message_of_a_chat_follows_the_earlier_messages(store: ConversationStore) -> None:
    dial, model = client(ADD, "42.", "Ada.")
    async with dial:
        chat = dial.conversation(store)
        assert chat.messages == ()
        turn = await chat.send("17 + 25?")
        assert turn.text == "42."
        events = [event async for event in chat.stream("Who?")]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Ada."
    assert isinstance(events[-1], Finished)
    assert texts(chat.messages) == ["17 + 25?", "", "42", "42.", "Who?", "Ada."]
    assert texts(model.requests[-1].messages) == ["17 + 25?", "", "42", "42.", "Who?"]


async def test_a_chat_without_a_store_is_kept_in_memory() -> None:
    dial, model = client("Hello, Ada.", "Ada.")
    async with dial:
        chat = dial.conversation()
        texts_of_answers = [(await chat.send(text)).text for text in ("I am Ada.", "Who am I?")]
        assert (await dial.conversation().send("Who am I?", model=ScriptedProvider(["Nobody."]))).text == "Nobody."
    assert texts_of_answers == ["Hello, Ada.", "Ada."]
    assert texts(model.requests[-1].messages) == ["I am Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_chat_with_an_id_is_created_once_and_then_continued(store: ConversationStore) -> None:
    for text, answer in (("I am Ada.", "Hello, Ada."), ("Who am I?", "Ada.")):
        async with DialClient(ScriptedProvider([answer])) as dial:
            chat = dial.conversation(store, id="user.ada")
            await chat.send(text)
    async with DialClient(ScriptedProvider([])) as dial:
        assert texts(await dial.conversation(store, id="user.ada").read()) == [
            "I am Ada.", "Hello, Ada.", "Who am I?", "Ada.",
        ]  # fmt: skip
    assert [summary.id for summary in await store.list()] == ["user.ada"]


async def test_a_chat_takes_the_keywords_of_a_turn(store: ConversationStore) -> None:
    dial, model = client("17", "18")
    async with dial:
        chat = dial.conversation(store)
        turn = await chat.send("How many?", output_type=int, system="Be brief.")
        await chat.send("Now?", tools=[])
    assert turn.output == 17
    assert ["Be brief." in request.instruction_text for request in model.requests] == [True, False]
    assert model.requests[1].tools == ()


async def test_a_chat_goes_on_after_a_failed_turn(store: ConversationStore) -> None:
    dial, _ = client({"error": {"message": "busy", "code": "overloaded"}}, "Here.")
    async with dial:
        chat = dial.conversation(store)
        with pytest.raises(ProviderError):
            await chat.send("Are you there?")
        assert texts(chat.messages) == ["Are you there?"]
        await chat.send("And now?")
    assert texts(chat.messages) == ["Are you there?", "And now?", "Here."]


@pytest.mark.parametrize("kept", [("asyncio", "memory")], indirect=True)
@pytest.mark.parametrize("id_", ["", "Zoë", "a\nb"])
async def test_an_id_of_other_characters_is_refused(store: ConversationStore, id_: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the id of a conversation"):
        DialClient(ScriptedProvider([])).conversation(store, id_)


@pytest.mark.parametrize("kept", [("asyncio", "memory")], indirect=True)
async def test_a_store_opens_and_closes_as_a_context(tmp_path: Path, store: ConversationStore) -> None:
    async with SQLStore(tmp_path / "talk.db") as opened, DialClient(ScriptedProvider(["Hello."])) as dial:
        await dial.conversation(opened, id="ada").send("Hi")
    async with SQLStore(tmp_path / "talk.db") as again:
        assert texts((await again.get("ada")).messages)[:2] == ["Hi", "Hello."]
    wrong: Any = "talk.db"
    with pytest.raises(TypeError, match="expected a ConversationStore"):
        dial.conversation(wrong)
    assert await store.latest() is None
