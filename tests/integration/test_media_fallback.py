"""Images and documents in each model API: their positions, checks before sending, and limits."""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.inner import (
    ANTHROPIC,
    CHAT,
    MAX_IMAGE,
    MAX_PARTS,
    MAX_TOTAL,
    OPENAI,
    Api,
    Completion,
    Content,
    EndpointProfile,
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallRequest,
    chat_api,
    count_expired,
    messages_api,
    responses_api,
)
from tests.support.images import encode as encoded
from tests.support.images import gif, jpeg, png, webp
from tests.support.model_endpoint import Say, hear, model_endpoint, provider_of
from tests.unit.test_wire_history_rules import check_chat, check_messages, check_responses

ME = "me"
DATA = encoded(png())
PIXEL = ImagePart(DATA, "image/png")
REPORT = FilePart("JVBERi0xLjcK", "application/pdf", "report.pdf")
DATA_URL = "data:application/pdf;base64,JVBERi0xLjcK"
SOURCE = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjcK"}
CALL = ToolCallRequest("a", "render", {})
SAID = "[report.pdf, application/pdf, about 1 kB: it cannot be shown to the model]"


def tool_conversation(*content: Part, is_error: bool = False) -> list[Message]:
    """Return a conversation in which a tool returned the content."""
    result = Message(Role.TOOL, content, tool_call_id="a", is_error=is_error)
    return [Message.user("Go on"), Message.assistant("", [CALL]), result]


# Positions


def test_the_messages_api_gets_images_and_documents_inside_the_result() -> None:
    sent = messages_api.to_messages(tool_conversation(TextPart("Here"), PIXEL, REPORT), ME)[2]["content"]

    assert sent[0]["type"] == "tool_result"
    assert sent[0]["content"] == [
        {"type": "text", "text": "Here"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "document", "source": SOURCE, "title": "report.pdf"},
    ]


def test_the_responses_api_gets_images_and_documents_inside_the_output() -> None:
    sent = responses_api.to_messages(tool_conversation(TextPart("Here"), PIXEL, REPORT), ME)[2]

    assert sent["type"] == "function_call_output"
    assert sent["output"] == [
        {"type": "input_text", "text": "Here"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}", "detail": "auto"},
        {"type": "input_file", "filename": "report.pdf", "file_data": DATA_URL},
    ]


def test_chat_completions_get_images_and_documents_after_the_results() -> None:
    tool, shown = chat_api.to_messages(tool_conversation(TextPart("Here"), PIXEL, REPORT), ME, OPENAI)[2:]

    assert tool["content"] == "Here\n[1 image(s), 1 document(s): shown below]"
    assert shown["role"] == "user"
    assert shown["content"] == [
        {"type": "text", "text": "[the result of render:]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": DATA_URL}},
    ]


def test_an_unsupported_document_is_replaced_by_a_placeholder_in_chat_completions() -> None:
    tool, shown = chat_api.to_messages(tool_conversation(REPORT, PIXEL), ME, CHAT)[2:]

    assert tool["content"] == f"{SAID}\n[1 image(s): shown below]"
    assert [part["type"] for part in shown["content"]] == ["text", "image_url"]


def test_no_message_is_added_after_results_if_the_profile_forbids_it() -> None:
    profile = EndpointProfile(user_after_tool=False, documents=True)
    sent = chat_api.to_messages(tool_conversation(REPORT, PIXEL), ME, profile)

    assert sent[-1]["role"] == "tool"
    assert sent[-1]["content"].startswith(f"{SAID}\n[image/png, ")
    asked = chat_api.to_messages([Message(Role.USER, (REPORT,))], ME, profile)
    assert asked[0]["content"][0]["type"] == "file", "what a person shows is not a result"


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        (
            chat_api.to_messages([Message(Role.USER, (TextPart("Read"), REPORT))], ME, OPENAI)[0],
            {"type": "file", "file": {"filename": "report.pdf", "file_data": DATA_URL}},
        ),
        (
            responses_api.to_messages([Message(Role.USER, (TextPart("Read"), REPORT))], ME)[0],
            {"type": "input_file", "filename": "report.pdf", "file_data": DATA_URL},
        ),
        (
            messages_api.to_messages([Message(Role.USER, (TextPart("Read"), REPORT))], ME)[0],
            {"type": "document", "source": SOURCE, "title": "report.pdf"},
        ),
    ],
    ids=["chat", "responses", "messages"],
)
def test_a_document_of_the_user_is_part_of_the_users_message(sent: dict[str, Any], part: dict[str, Any]) -> None:
    assert sent["content"][1] == part


def test_an_error_that_is_an_image_is_still_an_error() -> None:
    assert (
        chat_api.to_messages(tool_conversation(PIXEL, is_error=True), ME)[2]["content"]
        == "ERROR: [1 image(s): shown below]"
    )
    assert responses_api.to_messages(tool_conversation(PIXEL, is_error=True), ME)[2]["output"][0]["text"] == "ERROR:"
    assert messages_api.to_messages(tool_conversation(PIXEL, is_error=True), ME)[2]["content"][0]["is_error"] is True
    assert responses_api.to_messages(tool_conversation(TextPart("Error: no"), PIXEL, is_error=True), ME)[2]["output"][
        0
    ]["text"] == ("Error: no")


# Checks before sending


def on_the_wire(part: Part, profile: EndpointProfile = ANTHROPIC) -> dict[str, Any]:
    block: dict[str, Any] = messages_api.to_messages([Message(Role.USER, (part,))], ME, profile)[0]["content"][0]
    return block


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        (REPORT, True),
        (FilePart(encoded(b"\n junk \n%PDF-1.7"), "Application/PDF; version=1.7", "a.pdf"), True),
        (FilePart("JVBE\r\nRi0x\r\nLjcK\r\n", "application/x-pdf", "a.pdf"), True),
        (FilePart("JVBERi0xLjcK", "application/octet-stream", "a.pdf"), False),
        (FilePart("JVBERi0xLjcK", "", "a.pdf"), False),
        (FilePart(encoded(b"<html>Not found</html>"), "application/pdf", "a.pdf"), False),
        (FilePart("JVBERi0xLjc", "application/pdf", "a.pdf"), False),
        (FilePart("JVBERi0x=LjcK===", "application/pdf", "a.pdf"), False),
        (FilePart("", "application/pdf", "a.pdf"), False),
        (FilePart("JVBERi0x" + "A" * MAX_TOTAL, "application/pdf", "a.pdf"), False),
    ],
)
def test_only_a_valid_document_is_sent(document: FilePart, shown: bool) -> None:
    assert on_the_wire(document)["type"] == ("document" if shown else "text")


@pytest.mark.parametrize(
    ("begin", "kind"), [(png(), "image/png"), (jpeg(), "image/jpeg"), (gif(), "image/gif"), (webp(), "image/webp")]
)
@pytest.mark.parametrize("declared", ["image/png", "image/webp", "", "application/octet-stream"])
def test_an_image_is_sent_with_its_detected_type(begin: bytes, kind: str, declared: str) -> None:
    assert on_the_wire(ImagePart(encoded(begin), declared))["source"]["media_type"] == kind


def test_a_document_of_an_image_type_is_sent_as_an_image() -> None:
    assert on_the_wire(FilePart(encoded(jpeg()), "image/jpg", "a.jpg"))["source"]["media_type"] == "image/jpeg"


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (png(100, 9000), "it has 100 by 9,000 pixels, and models accept at most 8,000 on a side"),
        (jpeg(8001, 1), "it has 8,001 by 1 pixels, and models accept at most 8,000 on a side"),
        (png()[:20], "its header is damaged"),
        (jpeg()[:9], "its header is damaged"),
        (SVG, "it is no image of the type image/png"),
        (b"hello", "it is no image of the type image/png"),
    ],
)
@pytest.mark.parametrize("wire", [chat_api, responses_api, messages_api])
def test_only_the_image_that_no_endpoint_accepts_is_replaced_and_the_description_says_why(
    content: bytes, why: str, wire: Any
) -> None:
    notes: list[str] = []
    bad = ImagePart(encoded(content), "image/png")
    sent = json.dumps(wire.to_messages([Message(Role.USER, (bad, PIXEL))], ME, OPENAI, notes), ensure_ascii=False)

    assert (bad.data in sent, DATA in sent) == (False, True)
    assert notes == [f"image/png, about 1 kB: {why}"]
    assert notes[0] in sent


@pytest.mark.parametrize("size", [(8000, 8000), (1, 8000)])
def test_an_image_as_large_as_models_accept_is_sent(size: tuple[int, int]) -> None:
    assert on_the_wire(ImagePart(encoded(gif(*size)), "image/gif"))["type"] == "image"


@pytest.mark.parametrize(("size", "shown"), [(MAX_IMAGE, True), (MAX_IMAGE + 4, False)])
def test_an_image_above_the_limit_is_replaced_by_a_placeholder(size: int, shown: bool) -> None:
    image = DATA.rstrip("=")
    image += "A" * (size - len(image))
    assert (on_the_wire(ImagePart(image, "image/png"))["type"] == "image") is shown


@given(st.one_of(st.text("Ab+/=_- \n", max_size=12), st.binary(max_size=9).map(encoded)))
@example("AAAA=")
def test_only_strictly_valid_base64_is_sent(rest: str) -> None:
    data = encoded(gif() + b"12") + rest
    digits = "".join(data.split())
    try:
        # Python 3.11 accepts superfluous padding.
        valid = bool(binascii.a2b_base64(digits, strict_mode=True)) and len(digits) % 4 == 0
    except binascii.Error:
        valid = False

    assert (on_the_wire(ImagePart(data, "image/png"))["type"] == "image") is valid


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Report.PDF", "Report.PDF"),
        ("a\nb\x00\t c", "a b\x00 c.pdf"),
        ("", "document.pdf"),
        (" \n", "document.pdf"),
        ("\ud800", "\ufffd.pdf"),
        ("x" * 300, "x" * 200 + ".pdf"),
    ],
)
def test_a_document_name_is_converted_to_a_valid_name(name: str, title: str) -> None:
    assert on_the_wire(FilePart("JVBERi0xLjcK", "application/pdf", name))["title"] == title


# Limits

SIZES = st.lists(st.sampled_from([1, 1000, MAX_IMAGE, MAX_TOTAL // 2, MAX_TOTAL]), max_size=80)


@given(SIZES)
def test_images_stay_within_the_limits_and_the_newest_is_always_sent(sizes: list[int]) -> None:
    old = count_expired(sizes)
    kept = sizes[old:]

    assert len(kept) <= MAX_PARTS
    assert sum(kept) <= MAX_TOTAL
    assert bool(kept) is bool(sizes)
    if len(sizes) <= MAX_PARTS and sum(sizes) <= MAX_TOTAL:
        assert old == 0


@given(SIZES)
def test_placeholders_for_images_change_rarely_and_are_never_reverted(sizes: list[int]) -> None:
    old = [count_expired(sizes[:end]) for end in range(len(sizes) + 1)]

    assert old == sorted(old)
    changes = [at for at, (before, two) in enumerate(pairwise(old)) if before != two]
    added = [0, *accumulate(sizes)]
    for before, two in pairwise(changes):
        assert two - before > MAX_PARTS // 2 or added[two + 1] - added[before] > MAX_TOTAL // 2


@pytest.mark.parametrize("wire", [chat_api, responses_api, messages_api])
def test_only_the_newest_images_of_a_long_conversation_are_sent(wire: Any) -> None:
    conversation: list[Message] = []
    for number in range(30):
        call = ToolCallRequest(f"call_{number}", "screenshot", {})
        image = ImagePart(encoded(gif(number + 1)), "image/png")
        conversation += [Message.user("?"), Message.assistant("", [call])]
        conversation.append(Message(Role.TOOL, (image,), tool_call_id=call.id))

    sent = wire.to_messages(conversation, ME)
    written = json.dumps(sent)

    shown = [number for number in range(30) if encoded(gif(number + 1)) in written]
    assert shown == list(range(11, 30))
    assert written.count("it is no longer shown to the model") == 11
    check: Any = {chat_api: check_chat, responses_api: check_responses, messages_api: check_messages}[wire]
    check(sent if wire is chat_api else ("", sent))


# Notes for the user


def noted(conversation: Sequence[Message], profile: EndpointProfile = ANTHROPIC) -> list[str]:
    notes: list[str] = []
    messages_api.to_messages(conversation, ME, profile, notes)
    return notes


def test_a_note_names_content_that_is_not_sent_to_the_model() -> None:
    drawing = ImagePart(encoded(b"<svg/>"), "image/svg+xml")
    content: Content = (TextPart("Read"), REPORT, drawing, drawing)

    assert noted([Message(Role.USER, content)]) == ["image/svg+xml, about 1 kB: it cannot be shown to the model"]
    assert noted(tool_conversation(REPORT), EndpointProfile()) == [SAID[1:-1]]


def test_content_of_an_earlier_turn_has_no_note() -> None:
    assert (
        noted([*tool_conversation(REPORT), Message.assistant("Fine."), Message.user("And then?")], EndpointProfile())
        == []
    )


def test_many_unsupported_parts_have_one_note() -> None:
    files = tuple(FilePart("", "text/x", f"{number}.txt") for number in range(100))
    assert len(noted([Message(Role.USER, files)])) == 8


@pytest.mark.anyio
async def test_notes_are_part_of_the_completion() -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, Api.CHAT)
        heard = await hear(provider, *tool_conversation(REPORT, PIXEL))
        await provider.aclose()

    assert heard.completion == Completion(heard.completion.finish, heard.completion.usage, None, (SAID[1:-1],))
