"""The contract of every store: memory, SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.inner import MAX_PREVIEW, ConfigError, ConversationNotFound, ConversationStore, Message, ToolCallResult
from tests.support.temporary_stores import CALL, MESSAGES, place, store_at

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


async def test_a_new_conversation_is_empty_and_can_be_read_back(store: ConversationStore) -> None:
    before = datetime.now(UTC)
    made = await store.create("About time")
    assert made.title == "About time"
    assert made.messages == ()
    assert before <= made.created_at == made.updated_at <= datetime.now(UTC)
    assert await store.get(made.id) == made


async def test_a_conversation_has_an_owner_and_metadata(store: ConversationStore) -> None:
    data = {"project": 7, "tags": ["a", "\N{SNOWMAN}"], "deep": {"none": None, "yes": True}}
    made = await store.create("Trip", owner="ann", metadata=data)
    data["tags"] = "changed by the caller"
    assert (made.owner, made.metadata["tags"]) == ("ann", ["a", "\N{SNOWMAN}"])
    await store.append(made.id, MESSAGES)
    read = await store.get(made.id)
    assert (read.owner, read.metadata) == (made.owner, made.metadata)
    assert (await store.create(conversation_id=made.id, owner="bob")).owner == "ann", "it exists"


async def test_a_list_by_owner_has_the_conversations_of_this_owner_in_pages(store: ConversationStore) -> None:
    for number in range(3):
        for owner in ("ann", "bob", ""):
            await store.create(f"{owner} {number}", owner=owner, metadata={"number": number})
    first = await store.list(2, owner="ann")
    rest = await store.list(2, owner="ann", cursor=first.cursor)
    assert [(found.title, found.owner, found.metadata["number"]) for found in (*first, *rest)] == [
        (f"ann {number}", "ann", number) for number in (2, 1, 0)
    ]
    assert [found.title for found in await store.list(owner="")] == ["2", "1", "0"]
    assert [found.title for found in await store.list(owner="ann", search="1")] == ["ann 1"]
    assert (await store.list(owner="ann' OR ''='"), len(await store.list())) == ((), 9)


async def test_owner_and_metadata_are_replaced_each_alone_and_not_the_place_in_the_list(
    store: ConversationStore,
) -> None:
    made, later = await store.create(owner="ann", metadata={"a": 1, "b": 2}), await store.create()
    await store.update(made.id, metadata={"a": 3})
    assert ((await store.get(made.id)).owner, (await store.get(made.id)).metadata) == ("ann", {"a": 3})
    await store.update(made.id, owner="bob")
    assert ((await store.get(made.id)).owner, (await store.get(made.id)).metadata) == ("bob", {"a": 3})
    assert [found.id for found in await store.list()] == [later.id, made.id]
    with pytest.raises(ConversationNotFound):
        await store.update("no-such", owner="ann")


async def test_programs_that_change_other_metadata_at_once_lose_none(kept: tuple[str, str], tmp_path: Path) -> None:
    async with place(kept[1], tmp_path) as where:
        first = store_at(kept[1], where)
        second = first if kept[1] == "memory" else store_at(kept[1], where)
        made = await first.create(metadata={"kept": 1, "removed": 2})
        async with anyio.create_task_group() as group:
            for number in range(20):
                for name, store in (("a", first), ("b", second)):
                    group.start_soon(partial(store.update, made.id, metadata_changes={f"{name}{number}": number}))
            group.start_soon(partial(first.update, made.id, metadata_changes={"removed": None, "absent": None}))
        added = {f"{name}{number}": number for name in "ab" for number in range(20)}
        assert (await second.get(made.id)).metadata == {"kept": 1, **added}
        with pytest.raises(ConfigError, match="metadata"):
            await first.update(made.id, metadata_changes={"long": "x" * 20_000})
        assert (await first.get(made.id)).metadata == {"kept": 1, **added}
        for store in (first, second):
            await store.aclose()


@pytest.mark.parametrize(
    ("owner", "metadata"),
    [("x" * 201, {}), ("a\0b", {}), ("\ud800", {}), ("", {"a": object()}), ("", {"a": "x" * 20_000})],
)
async def test_an_owner_or_metadata_that_cannot_be_stored_is_refused(
    store: ConversationStore, owner: str, metadata: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match=r"owner|metadata"):
        await store.create(owner=owner, metadata=metadata)
    assert await store.list() == ()


async def test_messages_are_read_in_the_order_in_which_they_were_appended(store: ConversationStore) -> None:
    made = await store.create()
    await store.append(made.id, MESSAGES[:1])
    await store.append(made.id, MESSAGES[1:3])
    await store.append(made.id, [])
    await store.append(made.id, MESSAGES[3:])
    read = await store.get(made.id)
    assert read.messages == MESSAGES
    assert read.notes == ()
    assert read.created_at == made.created_at
    assert read.updated_at.tzinfo is not None
    assert read.updated_at > made.updated_at


async def test_messages_belong_to_one_conversation(store: ConversationStore) -> None:
    first, second = await store.create(), await store.create()
    await store.append(first.id, [Message.user("one")])
    await store.append(second.id, [Message.user("other")])
    assert (await store.get(first.id)).messages == (Message.user("one"),)
    assert (await store.get(second.id)).messages == (Message.user("other"),)


async def test_the_first_title_is_kept(store: ConversationStore) -> None:
    made = await store.create()
    assert made.title == ""
    await store.append(made.id, MESSAGES[:1], title="What time\nis it?")
    await store.append(made.id, MESSAGES[3:], title="something else")
    assert (await store.get(made.id)).title == "What time is it?"


async def test_the_list_begins_with_the_latest_change(store: ConversationStore) -> None:
    assert await store.list() == ()
    assert await store.latest() is None
    first, second, third = [await store.create(title) for title in ("first", "second", "third")]
    await store.append(first.id, MESSAGES)
    listed = await store.list()
    assert listed.cursor is None
    assert [conversation.title for conversation in listed] == ["first", "third", "second"]
    assert [conversation.message_count for conversation in listed] == [4, 0, 0]
    assert listed[0].created_at == first.created_at
    assert listed[0].updated_at > first.updated_at
    assert listed[2].id == second.id
    assert [conversation.id for conversation in await store.list(2)] == [first.id, third.id]
    assert await store.latest() == listed[0]


async def test_a_deleted_conversation_cannot_be_read(store: ConversationStore) -> None:
    kept, gone = await store.create(), await store.create()
    for made in (kept, gone):
        await store.append(made.id, MESSAGES)
    await store.delete(gone.id)
    assert [conversation.id for conversation in await store.list()] == [kept.id]
    assert (await store.get(kept.id)).messages == MESSAGES
    for attempt in (store.get(gone.id), store.append(gone.id, MESSAGES), store.delete(gone.id)):
        with pytest.raises(ConversationNotFound, match=gone.id):
            await attempt


@pytest.mark.parametrize("unknown", ["", "nobody", "\ud800", "a\0b", "x" * 1000, "' OR 1=1 --"])
async def test_an_unknown_conversation_is_reported_as_unknown(store: ConversationStore, unknown: str) -> None:
    await store.create()
    for attempt in (store.get(unknown), store.append(unknown, MESSAGES), store.delete(unknown)):
        with pytest.raises(ConversationNotFound):
            await attempt
    assert len(await store.list()) == 1


async def test_concurrent_appends_are_all_stored_completely(store: ConversationStore) -> None:
    conversations = [await store.create() for _ in range(8)]

    async def talk(conversation_id: str, who: int) -> None:
        for n in range(5):
            await store.append(conversation_id, [Message.user(f"{who} {n}"), Message.assistant(f"{who} {n}")])

    async with anyio.create_task_group() as group:
        for conversation in conversations:
            for who in range(3):
                group.start_soon(talk, conversation.id, who)
    for conversation in conversations:
        texts = [message.text for message in (await store.get(conversation.id)).messages]
        assert len(texts) == 30
        assert texts[::2] == texts[1::2]
        for who in range(3):
            assert [text for text in texts[::2] if text[0] == str(who)] == [f"{who} {n}" for n in range(5)]


async def test_a_store_can_be_closed_twice(store: ConversationStore) -> None:
    await store.create()
    await store.aclose()
    await store.aclose()


async def test_a_conversation_can_begin_with_messages(store: ConversationStore) -> None:
    made = await store.create("taken over", MESSAGES)
    assert made.messages == MESSAGES
    assert await store.get(made.id) == made
    await store.append(made.id, MESSAGES[:1])
    assert (await store.get(made.id)).messages == (*MESSAGES, MESSAGES[0])


async def test_renaming_does_not_change_the_order(store: ConversationStore) -> None:
    first, second = await store.create("first"), await store.create("second")
    await store.rename(first.id, "  another\nname ")
    assert [(conversation.id, conversation.title) for conversation in await store.list()] == [
        (second.id, "second"),
        (first.id, "another name"),
    ]
    with pytest.raises(ConversationNotFound):
        await store.rename("nobody", "x")


async def test_pages_list_every_conversation_once_despite_concurrent_changes(store: ConversationStore) -> None:
    made = [(await store.create(str(n))).id for n in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list(3, cursor=cursor)
        seen += [conversation.id for conversation in page]
        cursor = page.cursor
        if cursor is None:
            break
        await store.append(made[-1], MESSAGES)
        await store.create("new")
    assert seen == made[::-1]
    full = await store.list(100)
    assert (len(full), full.cursor) == (9, None)


@pytest.mark.parametrize("cursor", ["", "nonsense", "ÿ", "bm90aGluZw==", "bm8gdGltZQ=="])
async def test_an_invalid_cursor_is_refused(store: ConversationStore, cursor: str) -> None:
    with pytest.raises(ConfigError, match="invalid cursor"):
        await store.list(cursor=cursor)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", ["c", "b", "a"]),
        ("  ", ["c", "b", "a"]),
        ("tokyo", ["b", "a"]),
        ("TOKYO noon", ["a"]),
        ("über straSSe", ["c"]),
        ("100%", ["c"]),
        ("100_", []),
        ("!", ["c"]),
        ("\\", []),
        ("the tool said", []),
        ("nowhere", []),
        ("'; DROP TABLE messages; --", []),
        ("\0 x\ud800y", []),
    ],
)
async def test_a_search_finds_words_of_title_and_text(store: ConversationStore, search: str, found: list[str]) -> None:
    a = await store.create("About Tokyo")
    await store.append(a.id, [Message.user("What time is it?"), Message.assistant("It is noon.")])
    b = await store.create("Elsewhere")
    message = Message.assistant("Tokyo it is.", [CALL])
    await store.append(
        b.id, [message, Message.tool(CALL, ToolCallResult(CALL.id, success=True, content="the tool said"))]
    )
    c = await store.create("Sum")
    await store.append(c.id, [Message.user("Über die Straße: 100% sure! a\0b")])
    names = {a.id: "a", b.id: "b", c.id: "c"}
    assert [names[conversation.id] for conversation in await store.list(search=search)] == found


async def test_a_list_has_the_beginning_of_the_last_answer(store: ConversationStore) -> None:
    long = "It is noon\nin **Tokyo**,\u202e " + "and later elsewhere " * 20
    a = await store.create("A", [Message.user("What time is it?")])
    assert [found.preview for found in await store.list()] == [""]
    assert await store.acquire(a.id, "turn", [Message.user("And?")], expected_count=1, lease=60, title="")
    call = [
        Message.assistant("", [CALL]),
        Message.tool(CALL, ToolCallResult(CALL.id, success=True, content="the tool")),
    ]
    await store.append(a.id, [Message.assistant("I look it up.", [CALL])], turn="turn")
    assert [found.preview for found in await store.list()] == ["I look it up."]
    await store.append(a.id, call, turn="turn")
    assert [found.preview for found in await store.list()] == ["I look it up."], "an empty message is no answer"
    await store.release(a.id, "turn", [Message.assistant(long)])
    await store.create("B", [Message.user("Hi."), Message.assistant("Hello.")])
    hello, noon = [found.preview for found in await store.list()]
    assert hello == "Hello."
    assert noon.startswith("It is noon in **Tokyo**, and later")
    assert noon.endswith("…")
    assert len(noon) <= MAX_PREVIEW


async def test_a_search_has_pages(store: ConversationStore) -> None:
    made = [(await store.create(f"even {n}" if n % 2 == 0 else f"odd {n}")).id for n in range(6)]
    first = await store.list(2, search="even")
    second = await store.list(2, search="even", cursor=first.cursor)
    assert [conversation.id for conversation in (*first, *second)] == [made[4], made[2], made[0]]
    assert second.cursor is None
