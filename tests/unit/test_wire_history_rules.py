"""The rules of the three APIs for a conversation, as their endpoints check them, with invalid conversations."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.inner import ANTHROPIC, CHAT, OPENAI, EndpointProfile

IMAGE_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
MAX_SHOWN = 20
MAX_IMAGE, MAX_REQUEST = 5 * 1024 * 1024, 32_000_000


def strict_object(text: Any) -> dict[str, Any]:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    value = json.loads(text, parse_constant=no_constant)
    assert isinstance(value, dict)
    return value


def check_text(text: Any) -> None:
    assert isinstance(text, str)
    assert text.strip()


def check_json(value: Any) -> None:
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def check_data_url(url: str, profile: EndpointProfile) -> None:
    kind, data = re.fullmatch(r"data:([a-z/]+);base64,(.+)", url).groups()  # type: ignore[union-attr]
    check_image(kind, data, profile)


def check_image(kind: str, data: str, profile: EndpointProfile) -> None:
    assert profile.images
    assert kind in IMAGE_TYPES
    assert base64.b64decode(data, validate=True)
    assert len(data) <= MAX_IMAGE


def check_file(name: str, url: str, profile: EndpointProfile) -> None:
    assert url.startswith("data:application/pdf;base64,")
    check_pdf(name, url.partition(",")[2], profile)


def check_pdf(name: str, data: str, profile: EndpointProfile) -> None:
    assert profile.documents
    assert re.fullmatch(r"[^\r\n]{1,250}\.pdf", name, re.IGNORECASE)
    assert b"%PDF-" in base64.b64decode(data, validate=True)[:1024]


def check_sizes(sent: Any) -> None:
    """Check the number of images and documents, and the size of the whole request."""
    written = json.dumps(sent)
    assert len(written) <= MAX_REQUEST
    shown = re.findall(r'"type": "(?:image|image_url|input_image|document|file|input_file)"', written)
    assert len(shown) <= MAX_SHOWN


def check_chat(sent: Sequence[dict[str, Any]], profile: EndpointProfile = CHAT) -> None:
    check_json(sent)
    check_sizes(sent)
    pattern = r"[a-zA-Z0-9]{9}" if profile.short_ids else r"[!-~]{1,40}"
    seen: set[str] = set()
    open_calls: list[str] = []
    before = ""
    for at, message in enumerate(sent):
        role = message["role"]
        assert role == "tool" or not open_calls, "every call is answered before anything else is said"
        if role == "system":
            assert at == 0
            check_text(message["content"])
        elif role == "user":
            assert before != "user"
            assert profile.user_after_tool or before != "tool"
            check_chat_content(message["content"], profile)
        elif role == "assistant":
            assert before != "assistant"
            open_calls = check_chat_calls(message, pattern, seen)
            if message["content"] is not None or not open_calls:
                check_text(message["content"])
        else:
            assert role == "tool"
            assert message["tool_call_id"] == open_calls.pop(0), "in the order of the calls"
            check_text(message["content"])
        before = role
    assert not open_calls
    assert before in ("user", "tool")


def check_chat_content(content: Any, profile: EndpointProfile) -> None:
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if part["type"] == "text":
            check_text(part["text"])
        elif part["type"] == "file":
            check_file(part["file"]["filename"], part["file"]["file_data"], profile)
        else:
            check_data_url(part["image_url"]["url"], profile)


def check_chat_calls(message: dict[str, Any], pattern: str, seen: set[str]) -> list[str]:
    if "tool_calls" not in message:
        return []
    assert message["tool_calls"], "never an empty list"
    ids = [call["id"] for call in message["tool_calls"]]
    for call in message["tool_calls"]:
        assert call["type"] == "function"
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
        strict_object(call["function"]["arguments"])
        assert re.fullmatch(pattern, call["id"])
        assert call["id"] not in seen
        seen.add(call["id"])
    return ids


def check_responses(sent: tuple[str, Sequence[dict[str, Any]]], profile: EndpointProfile = OPENAI) -> None:
    instructions, items = sent
    check_json([instructions, *items])
    check_sizes(items)
    seen: set[str] = set()
    open_calls: list[str] = []
    answering = False
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            answering = True
            assert item["call_id"] == open_calls.pop(0)
            check_output(item["output"], profile)
            continue
        assert not (open_calls and answering), "outputs come together"
        assert not open_calls or kind in ("function_call", "reasoning", "message")
        answering = False
        if kind == "function_call":
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["name"])
            assert item["call_id"] not in seen
            strict_object(item["arguments"])
            seen.add(item["call_id"])
            open_calls.append(item["call_id"])
        elif kind == "message":
            check_item_content(item, profile)
    assert not open_calls
    assert items
    assert items[-1].get("type") == "function_call_output" or items[-1]["role"] == "user"


def check_output(output: Any, profile: EndpointProfile) -> None:
    for part in output if isinstance(output, list) else [{"type": "input_text", "text": output}]:
        check_input_part(part, profile)


def check_item_content(item: dict[str, Any], profile: EndpointProfile) -> None:
    if isinstance(item["content"], str):
        check_text(item["content"])
    elif item["role"] == "user":
        for part in item["content"]:
            check_input_part(part, profile)


def check_input_part(part: dict[str, Any], profile: EndpointProfile) -> None:
    if part["type"] == "input_text":
        check_text(part["text"])
    elif part["type"] == "input_file":
        check_file(part["filename"], part["file_data"], profile)
    else:
        assert part["type"] == "input_image"
        check_data_url(part["image_url"], profile)


def check_messages(sent: tuple[str, Sequence[dict[str, Any]]], profile: EndpointProfile = ANTHROPIC) -> None:
    system, conversation = sent
    check_json([system, *conversation])
    check_sizes(conversation)
    seen: set[str] = set()
    roles = [message["role"] for message in conversation]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], (
        "turns alternate and a person has the last word"
    )
    asked: list[str] = []
    for message in conversation:
        blocks = message["content"]
        assert blocks
        kinds = [block["type"] for block in blocks]
        if message["role"] == "user":
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert answered == asked, "each call has its result in the very next message, in order"
            assert kinds[: len(answered)] == ["tool_result"] * len(answered), "results come first"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert seen.isdisjoint(asked)
        assert len(set(asked)) == len(asked)
        seen.update(asked)
        for block in blocks:
            check_block(block, profile)
    assert not asked


def check_block(block: dict[str, Any], profile: EndpointProfile) -> None:
    match block["type"]:
        case "text":
            check_text(block["text"])
        case "tool_use":
            assert re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"])
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["name"])
            assert isinstance(block["input"], dict)
        case "tool_result":
            content = block["content"]
            for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
                check_block(part, profile)
        case "image":
            assert block["source"]["type"] == "base64"
            check_image(block["source"]["media_type"], block["source"]["data"], profile)
        case "document":
            assert block["source"]["type"] == "base64"
            assert block["source"]["media_type"] == "application/pdf"
            check_pdf(block["title"], block["source"]["data"], profile)
        case other:
            assert other in ("thinking", "redacted_thinking")


def called(*ids: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answered(call_id: str, content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "Hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
FILE = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjcK"}
NAMELESS = {"type": "file", "file": FILE | {"filename": ""}}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([USER, called("a"), USER], id="a call without a result"),
        pytest.param([USER, called("a", "b"), answered("b"), answered("a")], id="results out of order"),
        pytest.param([USER, answered("a")], id="a result without a call"),
        pytest.param([USER, called("a"), answered("a"), answered("a")], id="two results"),
        pytest.param([USER, called("a", arguments="{'x'"), answered("a")], id="arguments that are no JSON"),
        pytest.param([USER, called("a", arguments='{"x": NaN}'), answered("a")], id="arguments with NaN"),
        pytest.param([USER, called("a", name="a.b"), answered("a")], id="a name with a dot"),
        pytest.param([USER, called("x" * 41), answered("x" * 41)], id="an id that is too long"),
        pytest.param([USER, called("a"), answered("a"), called("a"), answered("a")], id="an id used twice"),
        pytest.param([USER, called(), USER], id="no calls in the list"),
        pytest.param([USER, called("a"), answered("a", " ")], id="a blank result"),
        pytest.param([USER, {"role": "assistant", "content": ""}, USER], id="an empty answer"),
        pytest.param([USER, {"role": "assistant", "content": "Hi"}], id="the message of the model is last"),
        pytest.param([USER, USER], id="two turns of one person"),
        pytest.param([USER, {"role": "system", "content": "Be kind"}, USER], id="instructions in the middle"),
        pytest.param([{"role": "user", "content": "\ud800"}], id="a lone surrogate"),
        pytest.param([{"role": "user", "content": [IMAGE] * 21}], id="too many images"),
        pytest.param([{"role": "user", "content": [NAMELESS]}], id="a document without a name"),
        pytest.param([USER, called("a"), answered("a", [IMAGE])], id="an image in a tool message"),
    ],
)
def test_an_invalid_chat_completions_conversation_breaks_a_rule(sent: list[dict[str, Any]]) -> None:
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_chat(sent, OPENAI)


def test_a_document_breaks_a_rule_if_the_endpoint_accepts_none() -> None:
    sent = [{"role": "user", "content": [{"type": "file", "file": FILE}]}]
    check_chat(sent, OPENAI)

    with pytest.raises(AssertionError):
        check_chat(sent, CHAT)


ASKED = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
SOURCE = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjcK"}
DOCUMENT = {"type": "document", "source": SOURCE, "title": "a.pdf"}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([ASKED, USES, ASKED], id="a call without a result"),
        pytest.param(
            [ASKED, USES, {"role": "user", "content": [*ASKED["content"], RESULT]}], id="the result is not first"
        ),
        pytest.param([ASKED, USES, {"role": "user", "content": [RESULT, RESULT]}], id="two results"),
        pytest.param([USES, {"role": "user", "content": [RESULT]}], id="the message of the model is first"),
        pytest.param([ASKED, ASKED], id="two turns of one person"),
        pytest.param([{"role": "user", "content": [{"type": "text", "text": " "}]}], id="a blank text"),
        pytest.param([{"role": "user", "content": [DOCUMENT | {"title": ""}]}], id="a document without a title"),
        pytest.param([{"role": "user", "content": [DOCUMENT] * 21}], id="too many documents"),
    ],
)
def test_an_invalid_messages_api_conversation_breaks_a_rule(sent: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        check_messages(("", sent))


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([{"type": "function_call_output", "call_id": "a", "output": "x"}], id="a result without a call"),
        pytest.param([{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}], id="no result"),
        pytest.param([], id="nothing"),
    ],
)
def test_an_invalid_responses_api_conversation_breaks_a_rule(items: list[dict[str, Any]]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        check_responses(("", items))
