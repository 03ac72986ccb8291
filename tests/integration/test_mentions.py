"""``@server:uri`` mentions in messages: the resource is attached, and other text with ``@`` is not a mention."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from dial_client import (
    ConversationManager,
    DialClient,
    FilePart,
    ImagePart,
    Limits,
    MemoryStore,
    Message,
    Role,
    TextPart,
)
from dial_client.testing import ScriptedProvider
from tests.inner import MAX_ATTACHED, Delta, ModelInfo, ModelRequest
from tests.support.servers.launch import raw
from tests.support.servers.library import PNG, Library, library

pytestmark = pytest.mark.anyio

FIRST = TextPart(
    "[resource book://1 of the server books, text/plain; the user attached it]\nThe first book.\n"
    "[end of resource book://1]",
    foreign=True,
)


async def test_a_mentioned_resource_is_attached_and_marked_as_foreign() -> None:
    async with DialClient(servers={"books": library()}) as dial:
        attached = await dial.attach("What is in @books:book://1?")
    assert attached.message == Message(Role.USER, (TextPart("What is in @books:book://1?"), FIRST))
    assert attached.notes == ()


async def test_images_and_documents_are_attached_and_other_files_are_described() -> None:
    async with DialClient(servers={"books": library()}) as dial:
        attached = await dial.attach("@books:book://cover @books:book://paper @books:book://sound, @books:book://all")
    _, image, paper, sound, first, second = tuple(attached.message.content)
    assert image == ImagePart(PNG, "image/png")
    assert paper == FilePart(PNG, "application/pdf", "book://paper")
    assert sound == TextPart("[resource book://sound, audio/wav, 8 bytes: it cannot be shown here]", foreign=True)
    assert "The first book." in str(first)
    assert "The second book." in str(second)


@pytest.mark.parametrize(
    "text",
    [
        "Mail ada@books:book://1 or ada@books.org",
        "As @books said: book://1",
        "@books: book://1 is good",
        "see http://x.test/@books:book://1",
        "@nobody and @media:print and matrix @ada:example.org",
        "a@b@books:book://1",
        "@",
        "@books:",
        "",
    ],
)
async def test_email_addresses_and_names_are_not_mentions(text: str) -> None:
    it = Library()
    async with DialClient(servers={"books": library(it)}) as dial:
        attached = await dial.attach(text)
    assert attached.message == Message.user(text)
    assert attached.notes == ()
    assert "resources/list" not in it.requests


@pytest.mark.parametrize(
    "text",
    [
        "(@books:book://1)",
        "@books:book://1, please",
        'read "@books:book://1".',
        "@books:book://1\nand more",
        "twice: @books:book://1 @books:book://1!",
    ],
)
async def test_surrounding_punctuation_is_not_part_of_a_mention(text: str) -> None:
    async with DialClient(servers={"books": library()}) as dial:
        attached = await dial.attach(text)
    assert attached.message.content == (TextPart(text), FIRST)


async def test_a_listed_uri_may_have_spaces_and_the_longest_match_is_used() -> None:
    it = Library()
    it.texts = {"book://a": "A", "book://a b": "AB", "book://a.": "dot"}
    async with DialClient(servers={"my books": library(it), "my": library()}) as dial:
        texts = [(await dial.attach(f"x @my books:{uri} y")).message.text for uri in it.texts]
    assert ["\nA\n" in texts[0], "\nAB\n" in texts[1], "\ndot\n" in texts[2]] == [True] * 3


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "@books:book://none",
            "@books:book://none is not attached: the server answered with an error: there is no book",
        ),
        ("@books:tale", "there is no resource 'tale' at 'books'"),
        ("@boks:book://1", "there is no server 'boks'"),
        ("@gone:book://1", "@gone:book://1 is not attached: the server ended with exit code 3"),
    ],
)
async def test_a_mention_that_cannot_be_attached_stays_in_the_text_with_a_note(text: str, note: str) -> None:
    async with DialClient(servers={"books": library(), "gone": raw("ExitsAtOnce")}) as dial:
        attached = await dial.attach(f"See {text} now")
    assert attached.message == Message.user(f"See {text} now")
    assert [attached_note[: len(note)] for attached_note in attached.notes] == [note]


async def test_the_number_of_attached_resources_is_limited() -> None:
    async with DialClient(servers={"books": library()}) as dial:
        attached = await dial.attach(" ".join(f"@books:book://shelf/{number}" for number in range(99)))
    assert len(attached.message.content) == 1 + MAX_ATTACHED
    assert attached.notes == (f"only the first {MAX_ATTACHED} resources are attached",)


class ReadsOn:
    """A model that searches the rest of a shortened resource."""

    info = ModelInfo("reads-on")

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        if last.role is Role.TOOL:
            reply = ScriptedProvider(["Found."])
        else:
            given = {"id": last.text.partition('read_result(id="')[2][:12], "search": "line 12345 "}
            reply = ScriptedProvider([{"tool_calls": [{"name": "read_result", "arguments": given}]}])
        async for delta in reply.generate(request):
            yield delta

    async def aclose(self) -> None:
        """Close nothing: the model has no connections."""


async def test_a_long_resource_is_shortened_and_the_model_can_read_the_rest() -> None:
    model = ReadsOn()
    async with DialClient(model, servers={"books": library()}, limits=Limits(max_result_chars=1000)) as dial:
        message = (await dial.attach("@books:book://long")).message
        turn = await dial.run([message])
    text = message.text
    assert message.content[1:] == (TextPart(text.partition("\n")[2], foreign=True),)
    assert len(text) < 1500
    assert "Line 0 of a long book." in text
    assert text.rstrip().endswith("[end of resource book://long]")
    [record] = turn.tool_calls
    assert "Line 12345 of a long book." in str(record.result.content)


@pytest.mark.parametrize(("reader", "found"), [("anna", "Line 12345"), ("bob", "There is no tool")])
async def test_only_the_owner_of_a_message_reads_on_in_what_it_attaches(reader: str, found: str) -> None:
    limits = Limits(max_result_chars=1000)
    async with DialClient(ReadsOn(), servers={"books": library()}, limits=limits) as dial:
        message = (await dial.attach("@books:book://long", owner="anna")).message
        manager = ConversationManager(dial, MemoryStore()).for_owner(reader)
        turn = await manager.chat((await manager.create()).id, message)
    [record] = turn.tool_calls
    assert found in str(record.result.content)


async def test_an_attached_resource_is_stored_and_read_back() -> None:
    async with DialClient(servers={"books": library()}) as dial:
        message = (await dial.attach("@books:book://1 @books:book://cover")).message
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message
