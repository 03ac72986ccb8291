"""Messages are converted to and from the formats of vendors; nothing is lost without a warning."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial_client.extend import to_anthropic, to_openai
from tests.inner import Citation, FilePart, ImagePart, Message, ProviderState, Role, TextPart, ToolCallRequest
from tests.support.fakes import unhurried
from tests.unit.test_messages import ANY_TEXT, CONTENT, JSON, MESSAGES

PNG, PDF = base64.b64encode(b"\x89PNG").decode(), base64.b64encode(b"%PDF-1.7").decode()
DOCUMENT = FilePart(PDF, "application/pdf", "a.pdf")
CALLS = [ToolCallRequest("call_1", "add", {"a": 1}), ToolCallRequest("call_2", "now", {})]
CONVERSATION = [
    Message.system("Be brief."),
    Message.user("Hello"),
    Message(
        Role.USER, (TextPart("What is this?"), ImagePart(PNG, "image/png"), FilePart(PDF, "application/pdf", "a.pdf"))
    ),
    Message.assistant("Let me see.", CALLS),
    Message(Role.TOOL, "2", tool_call_id="call_1", name="add"),
    Message(Role.TOOL, "12:00", tool_call_id="call_2", name="now"),
    Message.user("Thanks."),
    Message.assistant("You are welcome."),
]
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        ],
    },
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    {"role": "tool", "tool_call_id": "call_2", "content": "12:00"},
    {"role": "user", "content": "Thanks."},
    {"role": "assistant", "content": "You are welcome."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                "title": "a.pdf",
            },
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "call_2", "name": "now", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "2"},
            {"type": "tool_result", "tool_use_id": "call_2", "content": "12:00"},
        ],
    },
    {"role": "user", "content": "Thanks."},
    {"role": "assistant", "content": "You are welcome."},
]


def test_a_conversation_round_trips_through_chat_completions() -> None:
    notes: list[str] = []
    assert to_openai(CONVERSATION, notes) == OPENAI
    assert Message.from_openai(OPENAI, notes=notes) == CONVERSATION
    assert notes == []


def test_a_conversation_round_trips_through_the_messages_api() -> None:
    notes: list[str] = []
    assert to_anthropic(CONVERSATION, notes) == ANTHROPIC
    assert Message.from_anthropic(ANTHROPIC, notes=notes) == CONVERSATION
    assert notes == []


def test_a_conversation_is_converted_between_vendors() -> None:
    assert to_anthropic(Message.from_openai(OPENAI)) == ANTHROPIC
    assert to_openai(Message.from_anthropic(ANTHROPIC)) == OPENAI


def test_a_single_message_is_converted() -> None:
    assert Message.user("Hello").to_openai() == {"role": "user", "content": "Hello"}
    assert Message.user("Hello").to_anthropic() == {"role": "user", "content": "Hello"}
    assert Message.from_openai({"role": "developer", "content": "Be brief."}) == Message.system("Be brief.")
    assert Message.from_anthropic({"role": "user", "content": "Hello"}) == Message.user("Hello")
    with pytest.raises(ValueError, match="not one message but 2"):
        Message.from_anthropic(ANTHROPIC[4])


SIGNATURE = {"extra_content": {"google": {"thought_signature": "s"}}}
REASONING: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "Hm.",
    "tool_calls": [{**SIGNATURE, "id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
}
THINKING: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c", "name": "add", "input": {}},
    ],
}


def test_reasoning_and_signatures_round_trip_and_are_the_echo_of_the_named_provider() -> None:
    message = Message.from_openai(REASONING)
    assert message.to_openai() == REASONING
    named = Message.from_openai(REASONING, provider="chat:m@host")
    assert named.echo == ProviderState(
        "chat:m@host", {"reasoning": {"reasoning_content": "Hm."}, "calls": {"c": SIGNATURE}}
    )
    assert named.to_openai() == REASONING


def test_thinking_round_trips_in_its_place_and_is_the_echo_of_the_named_provider() -> None:
    message = Message.from_anthropic(THINKING, provider="messages:m@host")
    assert (message.text, message.tool_calls) == ("I look.", (ToolCallRequest("c", "add", {}),))
    assert message.echo == ProviderState("messages:m@host", THINKING["content"])
    assert message.to_anthropic() == THINKING


def test_the_thinking_of_a_vendor_is_left_out_for_a_different_vendor_with_a_warning() -> None:
    notes: list[str] = []
    assert "thinking" not in json.dumps(Message.from_anthropic(THINKING).to_openai(notes))
    assert "reasoning" not in json.dumps(Message.from_openai(REASONING).to_anthropic(notes))
    assert notes == ["left out: the reasoning of anthropic", "left out: the reasoning of openai"]


def test_content_without_a_counterpart_gets_a_warning() -> None:
    notes: list[str] = []
    result = Message(Role.TOOL, (ImagePart(PNG, "image/png"),), tool_call_id="c", is_error=True, taint="web")
    assert result.to_openai(notes) == {
        "role": "tool", "tool_call_id": "c", "content": "[image image/png, about 1 kB]",
    }  # fmt: skip
    assert notes == [
        "left out: the mark of untrusted content",
        "left out: a part that is not text (image image/png, about 1 kB)",
        "left out: the mark of a failed call: only the text of the result says so",
    ]


def test_the_messages_api_keeps_an_image_in_a_result_and_the_error_flag() -> None:
    result = Message(Role.TOOL, (ImagePart(PNG, "image/png"),), tool_call_id="c", is_error=True)
    [written] = to_anthropic([result])
    assert written["content"][0]["content"][0]["type"] == "image"
    assert Message.from_anthropic(written) == result


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}, "[image_url: https://x.test/a.png]"),
        ({"type": "file", "file": {"file_id": "f"}}, "[file]"),
        ({"type": "video"}, "[video]"),
    ],
)
def test_an_unsupported_part_of_openai_is_named_in_the_text(part: Any, shown: str) -> None:
    notes: list[str] = []
    message = Message.from_openai({"role": "user", "content": [part]}, notes=notes)
    assert message.text == shown
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "image", "source": {"type": "url", "url": "https://x.test/a"}}, "[image: https://x.test/a]"),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "[document]"),
        ({"type": "search_result", "source": "a", "title": "b", "content": []}, "[search_result]"),
    ],
)
def test_an_unsupported_block_of_anthropic_is_named_in_the_text(block: Any, shown: str) -> None:
    notes: list[str] = []
    message = Message.from_anthropic({"role": "user", "content": [block]}, notes=notes)
    assert message.text == shown
    assert len(notes) == 1


def test_citations_are_read_from_both_vendors() -> None:
    url = {"url": "https://x.test", "title": "X", "start_index": 0, "end_index": 4}
    [citation] = Message.from_openai(
        {"role": "assistant", "content": "Noon.", "annotations": [{"type": "url_citation", "url_citation": url}]}
    ).citations
    assert citation == Citation("https://x.test", "X", "https://x.test", start=0, end=4)
    blocks = [
        {"type": "text", "text": "It is "},
        {
            "type": "text",
            "text": "noon.",
            "citations": [
                {"type": "web_search_result_location", "url": "https://x.test", "title": "X", "cited_text": "q"}
            ],
        },
    ]
    message = Message.from_anthropic({"role": "assistant", "content": blocks})
    assert message.text == "It is noon."
    assert message.citations == (Citation("https://x.test", "X", "https://x.test", "q", start=6, end=11),)
    assert message.to_anthropic()["content"] == blocks


def test_arguments_that_are_no_json_object_are_kept_as_the_model_wrote_them() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{not"}}
    data = {"role": "assistant", "content": None, "tool_calls": [call]}
    message = Message.from_openai(data)
    assert message.tool_calls == (ToolCallRequest("c", "f", {}, "{not"),)
    assert message.to_openai() == data
    notes: list[str] = []
    message.to_anthropic(notes)
    assert notes == ["left out: arguments of a call that are not a JSON object"]


def test_audio_and_text_documents_round_trip() -> None:
    audio = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}
    assert Message.from_openai(audio).to_openai() == audio
    text = {"type": "text", "media_type": "text/plain", "data": "Hällo"}
    document = {"role": "user", "content": [{"type": "document", "source": text, "title": "a.txt"}]}
    assert Message.from_anthropic(document).to_anthropic() == document


@pytest.mark.parametrize("read", [Message.from_openai, Message.from_anthropic])
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"role": "narrator", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{"type": "text"}]},
        [5],
        5,
        "text",
        {"role": "user", "content": [{"type": "text", "text": 5}]},
    ],
    ids=str,
)
def test_an_invalid_message_is_a_value_error(read: Any, data: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        read(data)


@unhurried
@given(JSON)
def test_any_json_that_is_no_message_of_a_vendor_raises_only_a_value_error(data: Any) -> None:
    for read in (Message.from_openai, Message.from_anthropic):
        if data != []:
            with pytest.raises(ValueError, match="not a"):
                read(data)


@unhurried
@given(st.lists(MESSAGES, max_size=4))
def test_any_conversation_can_be_written_as_json_for_both_vendors(messages: list[Message]) -> None:
    for write in (to_openai, to_anthropic):
        written = write(messages)
        assert json.loads(json.dumps(written)) == written


@unhurried
@given(CONTENT, ANY_TEXT)
def test_attachments_of_a_user_are_never_lost_without_a_warning(content: Any, name: str) -> None:
    message = Message(Role.USER, content)
    for write, read in ((to_openai, Message.from_openai), (to_anthropic, Message.from_anthropic)):
        notes: list[str] = []
        [back] = read(write([message], notes))
        media = [part for part in message.content if not isinstance(part, str | TextPart)]
        kept = [part for part in back.content if not isinstance(part, str | TextPart)]
        assert len(kept) == len(media) or notes


def test_unset_fields_of_a_text_block_are_no_echo() -> None:
    blocks = [{"type": "text", "text": "It is 42.", "citations": None}]
    assert Message.from_anthropic({"role": "assistant", "content": blocks}).echo is None


def test_blocks_without_thinking_are_not_called_reasoning() -> None:
    notes: list[str] = []
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "text", "text": "No."},
    ]
    Message.from_anthropic({"role": "assistant", "content": blocks}).to_openai(notes)
    assert notes == ["left out: the blocks of anthropic"]
