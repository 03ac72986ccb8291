"""Stored messages of any content are read back unchanged; titles of conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio.from_thread
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.inner import (
    MAX_TITLE,
    DialError,
    FilePart,
    ImagePart,
    Message,
    ProviderState,
    Role,
    SQLStore,
    TextPart,
    ToolCallRequest,
    build_title,
)
from tests.support.temporary_stores import MESSAGES, query

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


@pytest.fixture
async def sql(tmp_path: Path, anyio_backend: str) -> AsyncIterator[SQLStore]:
    made = SQLStore.sqlite(tmp_path / "talk.db")
    yield made
    await made.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk.db"


def as_characters(text: str) -> str:
    """Replace surrogate pairs by their characters, as every JSON decoder does."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts = st.text(st.characters(), max_size=20).map(as_characters)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
parts = st.builds(TextPart, texts) | st.builds(ImagePart, texts, texts) | st.builds(FilePart, texts, texts, texts)
contents = texts | st.lists(parts, max_size=3).map(tuple)
calls = st.builds(ToolCallRequest, texts, texts, st.dictionaries(names, json_values, max_size=3), st.none() | texts)
messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=contents,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
    is_error=st.booleans(),
    echo=st.none() | st.builds(ProviderState, texts, json_values),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[anyio.from_thread.BlockingPortal, SQLStore]]:
    store = SQLStore.sqlite(tmp_path_factory.mktemp("shared") / "talk.db")
    with anyio.from_thread.start_blocking_portal("asyncio") as portal:
        yield portal, store
        portal.call(store.aclose)


@settings(max_examples=150, deadline=None)
@given(chunks=st.lists(st.lists(messages, max_size=3), max_size=3), title=texts)
@example(chunks=[], title="0 \N{SOFT HYPHEN} 0")
def test_any_message_is_read_back_unchanged(
    shared: tuple[anyio.from_thread.BlockingPortal, SQLStore], chunks: list[list[Message]], title: str
) -> None:
    portal, store = shared
    made = portal.call(store.create, title)
    for chunk in chunks:
        portal.call(store.append, made.id, chunk)
    read = portal.call(store.get, made.id)
    assert read.messages == tuple(message for chunk in chunks for message in chunk)
    assert read.title == made.title


@pytest.mark.parametrize(
    ("text", "stored"),
    [("a\0b", "a\0b"), ("\ud800", "\ud800"), ("\udc80 caf\udce9", "\udc80 caf\udce9"), ("\ud83d\ude00", "😀")],
)
async def test_text_that_no_text_column_can_store_is_stored(sql: SQLStore, text: str, stored: str) -> None:
    made = await sql.create(text)
    await sql.append(made.id, [Message.user(text)])
    assert (await sql.get(made.id)).messages == (Message.user(stored),)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("What time is it?", "What time is it?"),
        ("  two\r\n lines\t", "two lines"),
        ("\x1b[31mred\x07 \u202eevil\ud800\0", "[31mred evil"),
        ("word " * 30, " ".join(["word"] * 12) + "…"),
        ("x" * 100, "x" * 59 + "…"),
        ("語" * 100, "語" * 59 + "…"),
        ("short " + "x" * 100, "short " + "x" * 53 + "…"),
        ("x" * 60, "x" * 60),
    ],
)
def test_a_title_is_the_first_words_in_one_line(text: str, title: str) -> None:
    assert build_title(text) == title


@given(st.text(st.characters(), max_size=500))
def test_a_title_of_any_message_is_short_and_printable(text: str) -> None:
    title = build_title(text)
    assert len(title) <= MAX_TITLE
    assert title == "" or title.isprintable()
    assert title == title.strip()


async def test_a_message_that_cannot_be_serialized_stores_none_of_its_batch(sql: SQLStore) -> None:
    made = await sql.create()
    with pytest.raises(DialError, match="cannot be stored"):
        await sql.append(made.id, [Message.user("fine"), Message(Role.ASSISTANT, echo=ProviderState("x", object()))])
    assert (await sql.get(made.id)).messages == ()


async def test_an_unreadable_message_is_left_out_with_a_note(sql: SQLStore, file: Path) -> None:
    made = await sql.create("damaged")
    await sql.append(made.id, MESSAGES)
    for position, text in ((0, "{"), (2, '{"role": "wizard"}'), (3, '["role"]')):
        query(file, "UPDATE messages SET message = ? WHERE position = ?", text, position)
    read = await sql.get(made.id)
    assert read.messages == MESSAGES[1:2]
    assert read.notes == tuple(f"message {n} cannot be read and is left out" for n in (1, 3, 4))
    assert [conversation.message_count for conversation in await sql.list()] == [4]
    await sql.append(made.id, MESSAGES[3:])
    assert (await sql.get(made.id)).messages == (MESSAGES[1], MESSAGES[3])
