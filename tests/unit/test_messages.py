"""Messages, tool calls and results: immutable, and unchanged by a JSON round trip."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    Content,
    Failure,
    FilePart,
    ImagePart,
    Message,
    ProviderState,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    Usage,
    content_to_json,
    extract_text,
    normalize_media_type,
)
from tests.inner import message_describe as describe
from tests.support.fakes import unhurried

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20).map(
    lambda text: re.sub("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])", "-", text)
)
"""Any text, with lone surrogates and control characters. JSON reads two adjacent surrogates as one character: they are
kept apart."""
NUMBERS = st.integers() | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)
CONTENT: st.SearchStrategy[Content] = ANY_TEXT | st.lists(
    st.builds(TextPart, ANY_TEXT, st.booleans())
    | st.builds(ImagePart, ANY_TEXT, ANY_TEXT)
    | st.builds(FilePart, ANY_TEXT, ANY_TEXT, ANY_TEXT),
    max_size=3,
).map(tuple)
CALLS = st.builds(
    ToolCallRequest, ANY_TEXT, ANY_TEXT, st.dictionaries(ANY_TEXT, JSON, max_size=3), st.none() | ANY_TEXT
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=CONTENT,
    tool_calls=st.lists(CALLS, max_size=3).map(tuple),
    tool_call_id=st.none() | ANY_TEXT,
    name=st.none() | ANY_TEXT,
    is_error=st.booleans(),
    echo=st.none() | st.builds(ProviderState, ANY_TEXT, JSON),
)
RESULTS = st.builds(
    ToolCallResult,
    ANY_TEXT,
    st.booleans(),
    CONTENT,
    st.none() | ANY_TEXT,
    st.none() | st.sampled_from(Failure),
    ANY_TEXT,
)


@unhurried
@given(MESSAGES)
def test_any_message_round_trips_through_json(message: Message) -> None:
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


@unhurried
@given(MESSAGES)
def test_the_dict_of_a_message_has_only_json_types(message: Message) -> None:
    data = message.to_dict()
    assert json.loads(json.dumps(data)) == data


@unhurried
@given(CALLS)
def test_any_call_round_trips_through_json(call: ToolCallRequest) -> None:
    assert ToolCallRequest.from_dict(json.loads(json.dumps(call.to_dict()))) == call


@unhurried
@given(RESULTS)
def test_any_result_round_trips_through_json(result: ToolCallResult) -> None:
    assert ToolCallResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@unhurried
@given(JSON)
def test_any_json_that_is_no_message_raises_only_a_value_error(data: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        Message.from_dict(data)


def calling(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "1", "name": "a", "arguments": arguments}]}


INVALID_MESSAGES: list[tuple[str, Any]] = [
    ("not a mapping", []),
    ("no role", {"content": "hello"}),
    ("an unknown role", {"role": "narrator", "content": "hello"}),
    ("a role of the wrong type", {"role": ["user"], "content": "hello"}),
    ("content that is a number", {"role": "user", "content": 5}),
    ("content that is an object", {"role": "user", "content": {"type": "text", "text": "hello"}}),
    ("a part that is a string", {"role": "user", "content": ["hello"]}),
    ("a part of an unknown kind", {"role": "user", "content": [{"type": "video", "data": ""}]}),
    ("a part without its text", {"role": "user", "content": [{"type": "text"}]}),
    ("a part whose text is a number", {"role": "user", "content": [{"type": "text", "text": 5}]}),
    ("an image whose data is missing", {"role": "user", "content": [{"type": "image", "mime_type": "image/png"}]}),
    (
        "an image whose data is a number",
        {"role": "user", "content": [{"type": "image", "data": 1, "mime_type": "a/b"}]},
    ),
    ("calls that are a number", {"role": "assistant", "tool_calls": 5}),
    ("a call without a name", {"role": "assistant", "tool_calls": [{"id": "1", "arguments": {}}]}),
    ("a call that is a string", {"role": "assistant", "tool_calls": ["lookup"]}),
    ("a call whose arguments are a list", calling([])),
    ("a call whose arguments are pairs", calling([["x", 1]])),
    ("a call whose arguments are no JSON", calling("{")),
    ("a call whose arguments are a JSON list", calling("[]")),
    ("a call whose arguments are nested very deeply", calling("[" * 100_000)),
    ("an id that is an object", {"role": "tool", "content": "", "tool_call_id": {}}),
    ("a name that is a number", {"role": "tool", "content": "", "name": 5}),
    ("an echo that is a string", {"role": "assistant", "echo": "signature"}),
    ("an echo without its provider", {"role": "assistant", "echo": {"data": 1}}),
]


@pytest.mark.parametrize("data", [data for _, data in INVALID_MESSAGES], ids=[name for name, _ in INVALID_MESSAGES])
def test_an_invalid_message_is_a_value_error(data: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Message.from_dict(data)


def test_messages_in_the_format_of_chat_completions_are_read() -> None:
    data = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}},
        ],
    }
    assert Message.from_dict(data) == Message.assistant(
        "", [ToolCallRequest("call_1", "add", {"a": 1}), ToolCallRequest("call_2", "now", {})]
    )


def test_empty_fields_are_left_out_of_the_json() -> None:
    assert Message.user("hello").to_dict() == {"role": "user", "content": "hello"}


def test_the_message_of_a_result_has_the_id_and_the_name_of_its_call() -> None:
    call = ToolCallRequest("call_1", "add", {"a": 1})
    good = Message.tool(call, ToolCallResult("call_1", success=True, content="2"))
    bad = Message.tool(call, ToolCallResult.failed("call_1", Failure.TIMEOUT, "too slow"))
    assert (good.role, good.content, good.tool_call_id, good.name, good.is_error) == (
        Role.TOOL, "2", "call_1", "add", False,
    )  # fmt: skip
    assert (bad.content, bad.is_error) == ("too slow", True)


def test_a_failure_has_the_same_text_for_the_model_and_for_the_program() -> None:
    result = ToolCallResult.failed("call_1", Failure.DENIED, "not allowed")
    assert result.to_dict() == {
        "tool_call_id": "call_1", "success": False, "content": "not allowed", "error": "not allowed",
        "failure": "denied",
    }  # fmt: skip
    assert result.failure is Failure.DENIED


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Message.user("hello").content = "bye"  # type: ignore[misc]  # the assignment is the test


def test_removing_the_echo_keeps_the_content_of_a_message() -> None:
    plain = Message.assistant("hello")
    echoing = Message(Role.ASSISTANT, "hello", echo=ProviderState("openai", {"id": "rs_1"}))
    assert echoing.without_echo() == plain
    assert plain.without_echo() is plain
    assert "rs_1" not in repr(echoing)


def test_the_data_of_images_and_files_is_not_in_the_repr() -> None:
    message = Message(Role.TOOL, (ImagePart("AAAA" * 1_000, "image/png"), FilePart("BBBB", "application/pdf", "a.pdf")))
    printed = repr(message)
    assert "image/png" in printed
    assert "a.pdf" in printed
    assert not ("AAAA" in printed or "BBBB" in printed)


def test_the_text_of_content_is_that_of_its_text_parts() -> None:
    parts = (TextPart("one"), ImagePart("AA==", "image/png"), TextPart("two"))
    assert extract_text(parts) == "one\ntwo"
    assert content_to_json(parts)[1] == {"type": "image", "data": "AA==", "mime_type": "image/png"}


def test_a_document_is_written_with_its_name_and_may_be_read_without_a_name() -> None:
    written = {"type": "file", "data": "AA==", "mime_type": "application/pdf", "name": "a.pdf"}
    nameless = {"role": "user", "content": [{"type": "file", "data": "AA==", "mime_type": "application/pdf"}]}

    assert content_to_json((FilePart("AA==", "application/pdf", "a.pdf"),)) == [written]
    assert Message.from_dict(nameless).content == (FilePart("AA==", "application/pdf"),)


@pytest.mark.parametrize("wrong", [{"data": 1}, {"mime_type": None}, {"name": 2}])
def test_an_invalid_document_part_is_a_value_error(wrong: dict[str, Any]) -> None:
    part = {"type": "file", "data": "AA==", "mime_type": "application/pdf"} | wrong

    with pytest.raises(ValueError, match="not a message"):
        Message.from_dict({"role": "user", "content": [part]})


@pytest.mark.parametrize(
    ("mime_type", "meant"),
    [
        ("image/png", "image/png"),
        (" Image/PNG ; charset=x; q=1", "image/png"),
        ("image/jpg", "image/jpeg"),
        ("APPLICATION/X-PDF", "application/pdf"),
        ("", ""),
        (";", ""),
    ],
)
def test_a_mime_type_is_normalized_without_case_and_parameters(mime_type: str, meant: str) -> None:
    assert normalize_media_type(mime_type) == meant


@pytest.mark.parametrize(
    ("part", "description"),
    [
        (ImagePart("A" * 4000, "image/png"), "image/png, about 3 kB"),
        (ImagePart("AA==", " \n"), "an image, about 1 kB"),
        (FilePart("A" * 4000, "application/pdf", "a\nb.pdf"), "a b.pdf, application/pdf, about 3 kB"),
        (FilePart("", ""), "a file, about 1 kB"),
    ],
)
def test_an_image_or_a_document_is_described_in_one_line(part: ImagePart | FilePart, description: str) -> None:
    assert describe(part) == description


def test_the_length_of_a_description_is_bounded() -> None:
    assert len(describe(FilePart("", "x" * 10_000, "y" * 10_000))) < 300


def test_usages_are_added_field_by_field() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    assert Usage(1, 2, 3, 4).to_dict() == {
        "input_tokens": 1, "output_tokens": 2, "cached_tokens": 3, "reasoning_tokens": 4,
    }  # fmt: skip


@pytest.mark.parametrize("content", [42, None, b"Hi", {"text": "Hi"}, [TextPart("Hi"), 3]])
def test_invalid_content_is_a_type_error(content: Any) -> None:
    with pytest.raises(TypeError, match="the content of a message is a text or parts, such as TextPart, not"):
        Message.user(content)


def test_a_role_may_be_a_string_and_parts_may_be_a_list() -> None:
    role: Any = "user"
    parts: Any = [TextPart("Hi")]
    assert Message(role, parts) == Message(Role.USER, (TextPart("Hi"),))
    assert Message(role).role is Role.USER
    unknown: Any = "boss"
    with pytest.raises(ValueError, match="'boss' is not a valid Role"):
        Message(unknown)
