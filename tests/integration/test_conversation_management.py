"""Operations on stored conversations: rename, search, fork, export and import."""

from __future__ import annotations

import json

import pytest

from tests.inner import (
    INTERRUPTED,
    NO_RESULT_YET,
    ConfigError,
    ConversationNotFound,
    ConversationStore,
    ImagePart,
    Message,
    Role,
    ScriptedProvider,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
)
from tests.support.managed_conversations import WAIT, Calculator, dialogue, managed
from tests.support.temporary_stores import CALL, MESSAGES

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


async def test_a_renamed_conversation_keeps_its_title(store: ConversationStore) -> None:
    async with managed(store, ScriptedProvider(["Hi."], after="repeat")) as manager:
        made = await manager.create()
        await manager.chat(made.id, "I am Ann.")
        await manager.rename(made.id, "Ann")
        await manager.chat(made.id, "Who am I?")
        assert [conversation.title for conversation in await manager.list()] == ["Ann"]
        with pytest.raises(ConversationNotFound):
            await manager.rename("nobody", "x")


async def test_conversations_are_found_page_by_page(store: ConversationStore) -> None:
    async with managed(store, ScriptedProvider(["Certainly."], after="repeat")) as manager:
        for n in range(3):
            await manager.chat((await manager.create(f"Talk {n}")).id, "About Köln." if n else "About Paris.")
        first = await manager.list(1, search="köln certainly")
        second = await manager.list(1, search="köln certainly", cursor=first.cursor)
        assert [conversation.title for conversation in (*first, *second)] == ["Talk 2", "Talk 1"]
        assert second.cursor is None
        with pytest.raises(ConfigError, match="at least one"):
            await manager.list(0)


@pytest.mark.parametrize(("at", "kept_messages"), [(None, 4), (0, 0), (1, 1), (2, 3), (3, 3), (4, 4)])
async def test_a_fork_copies_the_first_messages_and_is_independent(
    store: ConversationStore, at: int | None, kept_messages: int
) -> None:
    async with managed(store, ["Hi."]) as manager:
        made = await store.create("Time", MESSAGES)
        forked = await manager.fork(made.id, at)
        assert (forked.title, forked.messages) == ("Time", MESSAGES[:kept_messages])
        await manager.chat(forked.id, "And now?")
        assert (await manager.get(made.id)).messages == MESSAGES
        expected = (*MESSAGES[:kept_messages], *dialogue("And now?", "Hi."))
        assert (await manager.get(forked.id)).messages == expected


@pytest.mark.parametrize("at", [-1, 5])
async def test_a_fork_at_a_missing_message_is_refused(store: ConversationStore, at: int) -> None:
    async with managed(store, []) as manager:
        made = await store.create("Time", MESSAGES)
        with pytest.raises(ConfigError, match="has 4 messages"):
            await manager.fork(made.id, at)
        with pytest.raises(ConversationNotFound):
            await manager.fork("nobody")
        assert (await manager.fork(made.id, 1, title="Another")).title == "Another"


async def test_a_fork_of_a_running_turn_marks_calls_without_a_result(store: ConversationStore) -> None:
    calculator = Calculator()
    async with managed(store, [WAIT], {"calculator": calculator.server}) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "Wait!")
        await calculator.waiting.wait()
        assert [message.text for message in (await manager.get(made.id)).messages][-1] == NO_RESULT_YET
        forked = await manager.fork(made.id)
        live.cancel()
        await live.result()
        assert [message.text for message in (await manager.get(forked.id)).messages][-1] == NO_RESULT_YET


async def test_an_exported_conversation_is_imported_as_a_new_conversation(store: ConversationStore) -> None:
    async with managed(store, []) as manager:
        made = await store.create(
            "Zürich", (*MESSAGES, Message(Role.USER, (TextPart("a"), ImagePart("aGk=", "image/png"))))
        )
        exported = await manager.export(made.id)
        back = await manager.import_json(exported)
        assert back.id != made.id
        assert (back.title, back.messages) == (made.title, made.messages)
        assert await manager.get(back.id) == back
        data = json.loads(exported)
        assert (data["format"], data["version"], data["id"]) == ("dial-conversation", 1, made.id)


async def test_a_list_of_messages_is_imported_and_repaired(store: ConversationStore) -> None:
    openai = [
        {"role": "user", "content": "What time is it?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "now", "arguments": "{}"}}],
        },
    ]
    async with managed(store, []) as manager:
        made = await manager.import_json(json.dumps(openai))
    assert [message.text for message in made.messages] == ["What time is it?", "", INTERRUPTED]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "not a conversation"),
        ('{"title": "x"}', "not a conversation"),
        ('{"messages": {}}', "not a conversation"),
        ('{"format": "else", "messages": []}', "another form"),
        ('{"version": 2, "messages": []}', "another form"),
        ('[{"role": "user", "content": "hi"}, {"role": "wizard"}]', r"messages\[1\]"),
        ("[7]", r"messages\[0\]"),
    ],
)
async def test_invalid_files_are_not_imported(store: ConversationStore, text: str, problem: str) -> None:
    async with managed(store, []) as manager:
        with pytest.raises(ConfigError, match=problem):
            await manager.import_json(text)
        assert await manager.list() == ()


async def test_an_export_as_markdown_is_readable(store: ConversationStore) -> None:
    fenced = Message.tool(CALL, ToolCallResult(CALL.id, success=False, content="```\nescape \x1b[31m\n```"))
    message = Message(Role.USER, (TextPart("Look:"), ImagePart("aGk=" * 1000, "image/png")))
    async with managed(store, []) as manager:
        made = await store.create(
            "Two\nlines", [message, Message.assistant("Hm.", [CALL]), fenced, Message.assistant("Done.")]
        )
        written = await manager.export(made.id, "markdown")
        with pytest.raises(ConfigError, match="unknown form"):
            await manager.export(made.id, "pdf")  # type: ignore[arg-type]  # on purpose
    assert written == (
        "# Two lines\n\n## User\n\nLook:\n\n[image/png, about 3 kB]\n\n## Assistant\n\nHm.\n\n"
        '**Calls `now`:**\n\n```json\n{\n  "zone": "Asia/Tokyo"\n}\n```\n\n'
        "**`now` failed:**\n\n````\n```\nescape \n```\n````\n\n## Assistant\n\nDone.\n"
    )


async def test_a_call_without_a_name_can_be_exported_as_markdown(store: ConversationStore) -> None:
    odd = ToolCallRequest("`", "`x`\n", {})
    async with managed(store, []) as manager:
        made = await store.create("", [Message.assistant("", [odd])])
        written = await manager.export(made.id, "markdown")
    assert written.startswith("# Conversation\n\n## Assistant\n\n**Calls `x`:**")
