"""Versions of questions and answers, and stored details of turns, in every kind of store."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.inner import (
    Completion,
    ConfigError,
    Continuation,
    ConversationBusy,
    ConversationStore,
    Delta,
    EditedMessage,
    FinishReason,
    Message,
    ModelInfo,
    ModelRequest,
    ProviderError,
    ReasoningChunk,
    Regeneration,
    Role,
    ScriptedProvider,
    TextChunk,
    Usage,
)
from tests.support.managed_conversations import ADD, Calculator, Echo, managed

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


async def test_a_regenerated_answer_is_based_on_one_version_of_the_conversation(store: ConversationStore) -> None:
    model = Echo()
    model.may_answer.set()
    async with managed(store, model) as manager:
        made = await manager.create()
        await manager.chat(made.id, "one")
        await manager.chat(made.id, "two")
        await manager.chat(made.id, Regeneration())
        assert texts(model.requests[-1].messages) == ["one", "You said: one", "two"]
        await manager.chat(made.id, EditedMessage(0, "other"))
        assert texts(model.requests[-1].messages) == ["other"]
        view = await manager.view(made.id)
        assert texts(view.conversation.messages) == ["other", "You said: other"]
        assert view.versions[0].current == 1
        await manager.switch(made.id, view.versions[0].positions[0])
        again = await manager.view(made.id)
        assert texts(again.conversation.messages) == ["one", "You said: one", "two", "You said: two"]
        assert [(found.message, len(found.positions), found.current) for found in again.versions] == [
            (0, 2, 0),
            (3, 2, 1),
        ]
        summary = (await manager.list())[0]
        assert summary.message_count == 7, "entries are not counted"
        assert texts((await manager.fork(made.id)).messages) == texts(again.conversation.messages)


async def test_versions_are_not_changed_while_a_turn_runs(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model, when_busy="refuse") as manager:
        made = await manager.create()
        turn = await manager.start(made.id, "one")
        await model.until_asked()
        with pytest.raises(ConversationBusy):
            await manager.switch(made.id, 0)
        with pytest.raises(ConversationBusy):
            await manager.remove_message(made.id, 0)
        with pytest.raises(ConversationBusy):
            await manager.start(made.id, Regeneration())
        model.may_answer.set()
        await turn.result()
        await manager.remove_message(made.id, 0)
        assert (await manager.get(made.id)).messages == ()
        with pytest.raises(ConfigError, match="no question"):
            await manager.start(made.id, Regeneration())


async def test_a_truncated_answer_is_continued_after_its_text(store: ConversationStore) -> None:
    provider = ScriptedProvider([{"text": "One, two, ", "finish": "length"}, "three."])
    async with managed(store, provider) as manager:
        made = await manager.create()
        first = await manager.chat(made.id, "Count!")
        assert first.stop_reason == "truncated"
        await manager.chat(made.id, Continuation())
        view = await manager.view(made.id)
        assert [message.role for message in view.conversation.messages] == [Role.USER, Role.ASSISTANT, Role.ASSISTANT]
        assert [details["stop_reason"] for _, details in view.turns] == ["truncated", "answered"]
        assert [index for index, _ in view.turns] == [1, 2]


class Thinker:
    """A model that streams reasoning and an answer."""

    info = ModelInfo("thinker")

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        yield ReasoningChunk(f"Thought {len(request.messages)}. ")
        yield ReasoningChunk("And another.")
        yield TextChunk("Done.")
        yield Completion(FinishReason.STOP, Usage(input_tokens=10, output_tokens=5), notes=("a parameter is ignored",))

    async def aclose(self) -> None:
        pass


async def test_reasoning_usage_and_notes_are_stored_with_the_turn(store: ConversationStore) -> None:
    async with managed(store, Thinker()) as manager:
        made = await manager.create()
        turn = await manager.chat(made.id, "Think!")
        ((index, details),) = (await manager.view(made.id)).turns
    assert index == 1
    assert details["reasoning"] == [{"reply": 0, "text": "Thought 1. And another."}]
    assert (details["model"], details["stop_reason"]) == ("thinker", "answered")
    assert details["usage"] == turn.usage_to_dict()
    assert details["notes"] == list(turn.notes)
    assert details["duration_s"] >= 0


async def test_calls_are_stored_with_their_servers_and_durations(store: ConversationStore) -> None:
    async with managed(store, [ADD, "Three and seven."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        turn = await manager.chat(made.id, "Add!")
        ((index, details),) = (await manager.view(made.id)).turns
    assert index == 4
    assert details["depth"] == 1
    assert [(call["id"], call["server"], call["tool"], call["duration_s"]) for call in details["calls"]] == [
        (record.call.id, "calculator", "add", record.duration) for record in turn.tool_calls
    ]


async def test_a_failed_turn_is_stored_with_its_error_until_the_next_attempt(store: ConversationStore) -> None:
    provider = ScriptedProvider([{"error": {"message": "the model is away"}}, "Hello."])
    async with managed(store, provider) as manager:
        made = await manager.create()
        with pytest.raises(ProviderError):
            await manager.chat(made.id, "Hello?")
        ((index, details),) = (await manager.view(made.id)).turns
        assert index == 0
        assert "the model is away" in details["error"]
        await manager.chat(made.id, Regeneration())
        view = await manager.view(made.id)
        assert texts(view.conversation.messages) == ["Hello?", "Hello."]
        assert [details.get("error") for _, details in view.turns if details.get("stop_reason")] == [None]


async def test_an_undone_exchange_is_not_regenerated(store: ConversationStore) -> None:
    async with managed(store, ["1", "2", "uno"]) as manager:
        made = await manager.create()
        await manager.chat(made.id, "one")
        await manager.chat(made.id, "two")
        await manager.undo(made.id)
        assert [index for index, _ in (await manager.view(made.id)).turns] == [1], "nor are its details shown"
        await manager.chat(made.id, Regeneration())
        assert texts((await manager.get(made.id)).messages) == ["one", "uno"]


async def test_a_summary_cannot_be_removed_or_switched(store: ConversationStore) -> None:
    async with managed(store, ["1", "2", "3", "4", "Numbers."]) as manager:
        made = await manager.create()
        for question in ("one", "two", "three", "four"):
            await manager.chat(made.id, question)
        await manager.compact(made.id)
        before = await manager.view(made.id)
        assert before.positions[0] is None
        (summary,) = (at for at, kept in enumerate((await store.get(made.id)).messages) if kept.replaces is not None)
        for change in (manager.remove_message, manager.switch):
            with pytest.raises(ConfigError, match="no message"):
                await change(made.id, summary)
        assert (await manager.view(made.id)).conversation == before.conversation
