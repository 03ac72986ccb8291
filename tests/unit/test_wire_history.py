"""Any conversation is sent in a form that is valid by the rules of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    ANTHROPIC,
    CHAT,
    NO_OUTPUT,
    OPENAI,
    Content,
    EndpointProfile,
    FilePart,
    ImagePart,
    Message,
    ProviderState,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    api_history,
    chat_api,
    messages_api,
    responses_api,
)
from tests.support.images import PIXEL
from tests.unit.test_wire_history_rules import check_chat, check_messages, check_responses

ME = "me"
MISTRAL = EndpointProfile(user_after_tool=False, short_ids=True)


# Conversations in any state.


TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n\t", "Hello", "error: no", "\ud800", "a\udc00\ud800b"]), st.text(max_size=8)
)
IDS = st.sampled_from(["a", "a", "b", "c", "", "call:1", "functions.f:0", "x" * 46, "é", "call 1", "a" * 9, "\ud800"])
NAMES = st.sampled_from(["f", "server__tool", "", "a.b", "x" * 80, "\ud800", "naïve tool"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


class Long(str):
    """A long string with a short repr in a failing example."""

    def __repr__(self) -> str:
        return f"Long({len(self)})"


BASE64 = st.sampled_from(
    [
        PIXEL,
        "aGVsbG8=",
        "JVBERi0xLjcK",
        "JVBE\nRi0x\n",
        "iVBORw0KGgo=",
        "",
        "not base64",
        "aGVsbG8",
        "\ud800",
        Long("A" * 5_300_000),
    ]
)
TYPES = st.sampled_from(
    ["image/png", "IMAGE/JPEG", "image/jpg; q=1", "image/x", "application/pdf", "Application/PDF;v=1", "text/x", ""]
)
IMAGES = st.builds(ImagePart, BASE64, TYPES)
FILES = st.builds(FilePart, BASE64, TYPES, st.sampled_from(["a.pdf", "", "a\nb", "\ud800", "x" * 300]))
CONTENT: st.SearchStrategy[Content] = st.one_of(
    TEXTS, st.lists(st.one_of(st.builds(TextPart, TEXTS), IMAGES, FILES), max_size=3).map(tuple)
)
CALLS = st.lists(
    st.builds(ToolCallRequest, IDS, NAMES, st.dictionaries(TEXTS, JSON, max_size=2), st.sampled_from([None, "{'a'"])),
    max_size=3,
).map(tuple)


def chat_echo(calls: Sequence[ToolCallRequest]) -> Any:
    extras = {call.id: {"extra_content": {"signature": "s"}} for call in calls}
    return {"reasoning": {"reasoning_content": "Hm"}, "calls": extras, "message": {"custom_content": {"state": {}}}}


def responses_echo(calls: Sequence[ToolCallRequest]) -> Any:
    items = [{"type": "reasoning", "id": "rs", "encrypted_content": "e", "summary": []}]
    asked = [
        {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.unreadable or "{}"} for c in calls
    ]
    return [*items, *asked]


def messages_echo(calls: Sequence[ToolCallRequest]) -> Any:
    items = [
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "text", "text": " "},
        {"type": "text", "text": "Hm"},
    ]
    return [*items, *({"type": "tool_use", "id": c.id, "name": c.name, "input": {}} for c in calls)]


EchoOf = Callable[[Sequence[ToolCallRequest]], Any]


@st.composite
def assistant_messages(draw: st.DrawFn, echo_of: EchoOf) -> Message:
    calls = draw(CALLS)
    mine = echo_of(calls if draw(st.booleans()) else calls[1:])
    echo = draw(
        st.sampled_from(
            [None, ProviderState(ME, mine), ProviderState(ME, draw(JSON)), ProviderState("another provider", mine)]
        )
    )
    return Message(Role.ASSISTANT, draw(CONTENT), calls, echo=echo)


def conversations(echo_of: EchoOf) -> st.SearchStrategy[list[Message]]:
    spoken = st.builds(Message, st.just(Role.USER), CONTENT)
    asked = st.one_of(st.none(), IDS)
    answered = st.builds(Message, st.just(Role.TOOL), CONTENT, tool_call_id=asked, is_error=st.booleans())
    return st.lists(st.one_of(spoken, assistant_messages(echo_of), answered), max_size=8)


@given(conversations(chat_echo))
def test_any_conversation_is_valid_for_chat_completions(conversation: list[Message]) -> None:
    blind = EndpointProfile(images=False, echo_reasoning="always", reasoning_field="reasoning_content")
    for profile in (CHAT, MISTRAL, OPENAI, blind):
        check_chat(chat_api.to_messages(conversation, ME, profile), profile)


@given(conversations(responses_echo))
def test_any_conversation_is_valid_for_responses(conversation: list[Message]) -> None:
    for profile in (CHAT, OPENAI, EndpointProfile(images=False)):
        check_responses(("", responses_api.to_messages(conversation, ME, profile)), profile)


@given(conversations(messages_echo))
def test_any_conversation_is_valid_for_messages(conversation: list[Message]) -> None:
    for profile in (CHAT, ANTHROPIC, EndpointProfile(images=False)):
        check_messages(("", messages_api.to_messages(conversation, ME, profile)), profile)


# Growing conversations.


GIVEN: st.SearchStrategy[Content] = st.one_of(st.just("12:00"), st.tuples(IMAGES), st.tuples(FILES))


@st.composite
def valid_requests(draw: st.DrawFn) -> list[list[Message]]:
    """Return the requests of a conversation in which every call is answered before the next request."""
    messages: list[Message] = []
    requests: list[list[Message]] = []
    for text in draw(st.lists(st.sampled_from(["Hello", "And then?"]), min_size=1, max_size=3)):
        messages.append(Message.user(text))
        requests.append(list(messages))
        for calls in draw(st.lists(CALLS.filter(bool), max_size=2)):
            echo = draw(
                st.sampled_from(
                    [None, ProviderState(ME, messages_echo(calls)), ProviderState(ME, responses_echo(calls))]
                )
            )
            messages.append(Message(Role.ASSISTANT, "Hm", calls, echo=echo))
            contents = draw(st.lists(GIVEN, min_size=len(calls), max_size=len(calls)))
            results = zip(calls, contents, strict=True)
            messages += [
                Message.tool(call, ToolCallResult(call.id, success=True, content=content)) for call, content in results
            ]
            requests.append(list(messages))
        messages.append(Message.assistant("Fine."))
    return requests


def sent_items(request: list[Message]) -> Iterator[list[Any]]:
    yield chat_api.to_messages(request, ME, OPENAI)
    yield responses_api.to_messages(request, ME)
    yield messages_api.to_messages(request, ME)


@given(valid_requests())
def test_later_requests_start_with_the_messages_of_earlier_requests(requests: list[list[Message]]) -> None:
    for before, after in pairwise(requests):
        for earlier, later in zip(sent_items(before), sent_items(after), strict=True):
            assert later[: len(earlier)] == earlier


WIRES = st.lists(
    st.tuples(
        st.sampled_from([chat_api, responses_api, messages_api]),
        st.sampled_from([ME, "another provider"]),
        st.sampled_from([OPENAI, CHAT, ANTHROPIC, MISTRAL]),
    ),
    min_size=1,
    max_size=3,
)


def check_kept(requests: Sequence[Sequence[Message]], wires: Sequence[tuple[Any, str, EndpointProfile]]) -> None:
    """Check that requests which share what was converted are those that share nothing."""
    kept: Any = {}
    sent = []
    for request in requests:
        for wire, name, profile in wires:
            notes: list[str] = []
            notes_alone: list[str] = []
            messages = wire.to_messages(request, name, profile, notes, kept)
            assert repr(messages) == repr(wire.to_messages(request, name, profile, notes_alone))
            assert notes == notes_alone
            sent.append((messages, repr(messages)))
    assert all(repr(messages) == text for messages, text in sent)


@given(valid_requests(), WIRES)
def test_a_request_of_a_turn_does_not_depend_on_earlier_requests(requests: list[list[Message]], wires: Any) -> None:
    check_kept([requests[-1][:end] for end in range(len(requests[-1]) + 1)], wires)


@given(
    st.sampled_from([chat_echo, responses_echo, messages_echo]).flatmap(
        lambda echo_of: st.tuples(conversations(echo_of), conversations(echo_of))
    ),
    st.lists(st.integers(0, 8), max_size=4),
    WIRES,
)
def test_a_request_of_an_edited_conversation_does_not_depend_on_earlier_requests(
    parts: tuple[list[Message], list[Message]], ends: list[int], wires: Any
) -> None:
    conversation, continuation = parts
    edited = [*conversation[:-1], *continuation]
    check_kept([messages[:end] for end in (*ends, len(edited)) for messages in (conversation, edited)], wires)


# Single rules.


CALL = ToolCallRequest("a", "f", {"x": 1})
OTHER = ToolCallRequest("b", "g", {})


def result(call_id: str, content: Content = "done", *, is_error: bool = False) -> Message:
    return Message(Role.TOOL, content, tool_call_id=call_id, is_error=is_error)


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        pytest.param(
            [Message.assistant("", [CALL, OTHER]), result("b", "two"), result("a", "one")],
            [("assistant", None), ("tool", "one"), ("tool", "two")],
            id="results in the order of the calls",
        ),
        pytest.param(
            [Message.assistant("", [CALL, OTHER]), result("b"), Message.user("Go on")],
            [
                ("assistant", None),
                ("tool", "ERROR: [no result: the call was interrupted]"),
                ("tool", "done"),
                ("user", "Go on"),
            ],
            id="a missing result",
        ),
        pytest.param(
            [Message.assistant("", [CALL]), Message.user("Wait"), result("a", "late")],
            [("assistant", None), ("tool", "late"), ("user", "Wait")],
            id="a result that came late",
        ),
        pytest.param(
            [
                result("a"),
                Message.user("Hi"),
                result("z"),
                Message.assistant("", [CALL]),
                result("a"),
                result("a", "no"),
            ],
            [("user", "Hi"), ("assistant", None), ("tool", "done")],
            id="results without a call, and one too many",
        ),
        pytest.param(
            [Message.assistant("", [CALL]), result("a", "1"), Message.assistant("", [CALL]), result("a", "2")],
            [("assistant", None), ("tool", "1"), ("assistant", None), ("tool", "2")],
            id="one id in two rounds",
        ),
        pytest.param(
            [Message.assistant("", [CALL, CALL]), result("a", "1"), result("a", "2")],
            [("assistant", None), ("tool", "1"), ("tool", "2")],
            id="one id twice in one round",
        ),
        pytest.param(
            [Message.assistant("", [CALL]), result("a", "  ")],
            [("assistant", None), ("tool", NO_OUTPUT)],
            id="an empty result",
        ),
        pytest.param(
            [
                Message.assistant("", [CALL, OTHER]),
                result("a", "no", is_error=True),
                result("b", "Error: x", is_error=True),
            ],
            [("assistant", None), ("tool", "ERROR: no"), ("tool", "Error: x")],
            id="errors get one prefix",
        ),
        pytest.param(
            [Message.user(""), Message.user("Hi"), Message.assistant(" "), Message.user("Hm")],
            [("user", "(no text)\n\nHi\n\nHm")],
            id="empty messages",
        ),
        pytest.param(
            [Message.user("Hi"), Message.assistant("Well"), Message.assistant("yes")],
            [("user", "Hi"), ("assistant", "Well\n\nyes"), ("user", api_history.GO_ON)],
            id="the message of the model is last",
        ),
        pytest.param([], [("user", api_history.NO_TEXT)], id="no messages"),
    ],
)
def test_a_conversation_is_normalized(conversation: list[Message], expected: list[tuple[str, Any]]) -> None:
    sent = chat_api.to_messages(conversation, ME)

    assert [(message["role"], message["content"]) for message in sent] == expected


def test_valid_ids_are_kept_and_invalid_ids_are_replaced_in_call_and_result() -> None:
    calls = [ToolCallRequest(call_id, "f", {}) for call_id in ("functions.f:0", "x" * 46, "", "ok")]
    conversation = [Message.assistant("", calls), *(result(call.id, call.id or "empty") for call in calls)]

    sent = chat_api.to_messages(conversation, ME)
    blocks = messages_api.to_messages(conversation, ME)

    ids = [call["id"] for call in sent[0]["tool_calls"]]
    assert (ids[0], ids[3]) == ("functions.f:0", "ok")
    assert [message["tool_call_id"] for message in sent[1:]] == ids
    used = [block["id"] for block in blocks[1]["content"]]
    assert [block["tool_use_id"] for block in blocks[2]["content"]] == used
    assert used[0] != "functions.f:0"


def test_invalid_names_and_arguments_are_sent_back_in_a_valid_form() -> None:
    call = ToolCallRequest("a", "functions.f", {"x": float("nan"), "y": "\ud83d\ude00\ud800"}, unreadable="{'x'")

    sent = chat_api.to_messages([Message.assistant("", [call])], ME)[0]["tool_calls"][0]["function"]

    assert sent == {"name": "functions_f", "arguments": '{"x":null,"y":"😀\ufffd"}'}


def test_deeply_nested_arguments_are_sent_in_a_valid_form() -> None:
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"a": deep}

    check_chat(chat_api.to_messages([Message.assistant("", [ToolCallRequest("a", "f", deep)])], ME))


def test_images_of_tools_follow_the_results_if_a_tool_message_holds_only_text() -> None:
    picture = ImagePart(PIXEL, "image/png")
    conversation = [
        Message.assistant("", [CALL, OTHER]),
        result("a", (TextPart("Here"), picture)),
        result("b", (picture,)),
    ]

    sent = chat_api.to_messages([*conversation, Message.user("What is it?")], ME)
    described = chat_api.to_messages(conversation, ME, MISTRAL)

    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user"]
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "text", "image_url", "text"]
    assert sent[1]["content"] == "Here\n[1 image(s): shown below]"
    assert "image/png" in described[2]["content"]
    assert len(described) == 3


def test_an_assistant_message_is_inserted_if_no_user_message_may_follow_a_tool_message() -> None:
    sent = chat_api.to_messages([Message.assistant("", [CALL]), result("a"), Message.user("Hm")], ME, MISTRAL)

    assert [message["role"] for message in sent] == ["assistant", "tool", "assistant", "user"]


def test_an_echo_with_different_calls_is_not_used() -> None:
    found_in_text = Message(Role.ASSISTANT, "Hm", (CALL,), echo=ProviderState(ME, responses_echo([])))
    sent = responses_api.to_messages([found_in_text, result("a")], ME)

    assert [item.get("type", "message") for item in sent] == ["message", "function_call", "function_call_output"]

    found_in_text = Message(Role.ASSISTANT, "Hm", (CALL,), echo=ProviderState(ME, messages_echo([OTHER])))
    blocks = messages_api.to_messages([Message.user("?"), found_in_text], ME)[1]["content"]

    assert [block["type"] for block in blocks] == ["text", "tool_use"]
    assert blocks[1]["id"] == "a"


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        (ImagePart(PIXEL, "image/png"), True),
        (ImagePart(PIXEL, "IMAGE/WEBP"), True),
        (ImagePart("aGVsbG8=", "image/png"), False),
        (ImagePart("aGVsbG8=", "image/svg+xml"), False),
        (ImagePart("aGVsbG8=", ""), False),
        (ImagePart("", "image/png"), False),
        (ImagePart("%%%", "image/png"), False),
        (ImagePart("A" * (4 * 1024 * 1024 * 5 // 3 + 8), "image/png"), False),
    ],
)
def test_an_image_that_no_provider_accepts_is_described(image: ImagePart, shown: bool) -> None:
    sent = messages_api.to_messages([Message(Role.USER, (image,))], ME)[0]["content"][0]

    assert sent["type"] == ("image" if shown else "text")
