"""The rules of the three APIs for a conversation, as their endpoints check them; and proof that the rules bite."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from dial_client.providers.profile import CHAT, Profile

IMAGE_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


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


def check_data_url(url: str) -> None:
    kind, data = re.fullmatch(r"data:([a-z/]+);base64,(.+)", url).groups()  # type: ignore[union-attr]
    assert kind in IMAGE_TYPES
    assert base64.b64decode(data, validate=True)


def check_chat(sent: Sequence[dict[str, Any]], profile: Profile = CHAT) -> None:
    check_json(sent)
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
            check_chat_content(message["content"])
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


def check_chat_content(content: Any) -> None:
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if part["type"] == "text":
            check_text(part["text"])
        else:
            check_data_url(part["image_url"]["url"])


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


def check_responses(sent: tuple[str, Sequence[dict[str, Any]]]) -> None:
    instructions, items = sent
    check_json([instructions, *items])
    seen: set[str] = set()
    open_calls: list[str] = []
    answering = False
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            answering = True
            assert item["call_id"] == open_calls.pop(0)
            check_output(item["output"])
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
            check_item_content(item)
    assert not open_calls
    assert items
    assert items[-1].get("type") == "function_call_output" or items[-1]["role"] == "user"


def check_output(output: Any) -> None:
    for part in output if isinstance(output, list) else [{"type": "input_text", "text": output}]:
        check_input_part(part)


def check_item_content(item: dict[str, Any]) -> None:
    if isinstance(item["content"], str):
        check_text(item["content"])
    elif item["role"] == "user":
        for part in item["content"]:
            check_input_part(part)


def check_input_part(part: dict[str, Any]) -> None:
    if part["type"] == "input_text":
        check_text(part["text"])
    else:
        assert part["type"] == "input_image"
        check_data_url(part["image_url"])


def check_messages(sent: tuple[str, Sequence[dict[str, Any]]]) -> None:
    system, conversation = sent
    check_json([system, *conversation])
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
            check_block(block)
    assert not asked


def check_block(block: dict[str, Any]) -> None:
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
                check_block(part)
        case "image":
            assert block["source"]["media_type"] in IMAGE_TYPES
            assert base64.b64decode(block["source"]["data"], validate=True)
        case other:
            assert other in ("thinking", "redacted_thinking")


def called(*ids: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answered(call_id: str, content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "Hi"}


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
        pytest.param([USER, {"role": "assistant", "content": "Hi"}], id="the model has the last word"),
        pytest.param([USER, USER], id="two turns of one person"),
        pytest.param([USER, {"role": "system", "content": "Be kind"}, USER], id="instructions in the middle"),
        pytest.param([{"role": "user", "content": "\ud800"}], id="half of a surrogate pair"),
    ],
)
def test_what_an_endpoint_refuses_breaks_a_rule(sent: list[dict[str, Any]]) -> None:
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_chat(sent)


ASKED = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "done"}


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([ASKED, USES, ASKED], id="a call without a result"),
        pytest.param(
            [ASKED, USES, {"role": "user", "content": [*ASKED["content"], RESULT]}], id="the result is not first"
        ),
        pytest.param([ASKED, USES, {"role": "user", "content": [RESULT, RESULT]}], id="two results"),
        pytest.param([USES, {"role": "user", "content": [RESULT]}], id="the model begins"),
        pytest.param([ASKED, ASKED], id="two turns of one person"),
        pytest.param([{"role": "user", "content": [{"type": "text", "text": " "}]}], id="a blank text"),
    ],
)
def test_what_the_messages_api_refuses_breaks_a_rule(sent: list[dict[str, Any]]) -> None:
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
def test_what_the_responses_api_refuses_breaks_a_rule(items: list[dict[str, Any]]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        check_responses(("", items))
