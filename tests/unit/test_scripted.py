"""The scripted model replies as its script says, on both event loops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.inner import (
    ConfigError,
    FinishReason,
    Message,
    ModelRequest,
    ProviderError,
    ScriptedProvider,
    ScriptedReply,
    TextChunk,
    ToolCallRequest,
    ToolChoice,
    Usage,
    read_file,
)
from tests.support.model_endpoint import hear


@pytest.mark.anyio
async def test_replies_are_played_in_order_and_requests_are_recorded() -> None:
    provider = ScriptedProvider(
        [
            {
                "reasoning": "Hm",
                "text": "I look.",
                "tool_calls": [{"name": "now"}, {"name": "add", "arguments": {"x": 1}}],
            },
            "Noon.",
        ]
    )
    first, second = await hear(provider, Message.user("Time?")), await hear(provider)

    assert (first.reasoning, first.text) == ("Hm", "I look.")
    assert first.calls == [ToolCallRequest("call_1", "now", {}), ToolCallRequest("call_2", "add", {"x": 1})]
    assert first.completion.finish is FinishReason.TOOL_CALLS
    assert (second.text, second.completion.finish) == ("Noon.", FinishReason.STOP)
    assert provider.requests[0] == ModelRequest((Message.user("Time?"),))
    assert len(provider.requests) == 2
    await provider.aclose()
    await provider.aclose()


@pytest.mark.anyio
async def test_a_reply_may_have_usage_notes_and_a_finish_reason() -> None:
    reply = {
        "text": "Well",
        "finish": "length",
        "usage": {"input_tokens": 3, "output_tokens": 2},
        "notes": ["cut"],
        "tool_calls": [{"name": "now", "id": "x"}],
    }
    result = await hear(ScriptedProvider([reply]))

    assert result.completion.finish is FinishReason.LENGTH
    assert result.completion.usage == Usage(3, 2)
    assert result.completion.notes == ("cut",)
    assert result.calls == [], "only a whole reply has calls"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"x": 1}', ToolCallRequest("a", "f", {"x": 1})),
        ("{'x': 1", ToolCallRequest("a", "f", {}, unreadable="{'x': 1")),
        ("[1]", ToolCallRequest("a", "f", {}, unreadable="[1]")),
    ],
)
async def test_arguments_may_be_unparsed_text(arguments: str, expected: ToolCallRequest) -> None:
    call = {"id": "a", "name": "f", "arguments": arguments}

    assert (await hear(ScriptedProvider([{"tool_calls": [call]}]))).calls == [expected]


@pytest.mark.anyio
async def test_a_streamed_reply_is_split_into_chunks_and_a_whole_reply_is_not() -> None:
    provider = ScriptedProvider([{"text": "Hello", "chunk_size": 2}], after="repeat")

    assert (await hear(provider)).deltas == 4
    assert (await hear(provider, stream=False)).deltas == 2


@pytest.mark.anyio
async def test_after_the_last_reply_an_error_is_raised_or_the_last_reply_is_repeated() -> None:
    ends, repeats = ScriptedProvider(["Hi"]), ScriptedProvider(["Hi"], after="repeat")
    for provider in (ends, repeats):
        await hear(provider)

    with pytest.raises(ProviderError, match="ends after 1"):
        await hear(ends)
    assert (await hear(repeats)).text == "Hi"
    with pytest.raises(ProviderError, match="ends after 0"):
        await hear(ScriptedProvider([], after="repeat"))


@pytest.mark.anyio
async def test_an_error_is_raised_after_the_text_of_its_reply() -> None:
    error = {"message": "busy", "status": 503, "code": "overloaded", "retry_after": 2}
    provider = ScriptedProvider([{"text": "Half", "error": error}], after="repeat")
    texts = []

    for _ in range(2):
        with pytest.raises(ProviderError, match="busy") as caught:
            async for delta in provider.generate(ModelRequest(())):
                texts.append(delta)  # noqa: PERF401 - a comprehension would lose the deltas before the error
        assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "overloaded", 2)
    assert texts == [TextChunk("Half"), TextChunk("Half")]


@pytest.mark.anyio
async def test_a_hanging_reply_waits_until_the_request_is_cancelled() -> None:
    result = []
    with anyio.move_on_after(0.05) as scope:
        async for delta in ScriptedProvider([{"text": "Half", "hang": True}]).generate(ModelRequest(())):
            result.append(delta)  # noqa: PERF401 - a comprehension would lose the deltas

    assert scope.cancelled_caught
    assert result == [TextChunk("Half")]


@pytest.mark.anyio
async def test_replies_may_be_python_objects() -> None:
    call = ToolCallRequest("a", "f", {})
    provider = ScriptedProvider([ScriptedReply(text="Hi", tool_calls=(call,)), {"tool_calls": (call,)}])

    assert (await hear(provider)).calls == (await hear(provider)).calls == [call]


@pytest.mark.anyio
@pytest.mark.parametrize("script", [["Hi"], {"replies": ["Hi"]}, {"replies": [{"text": "Hi"}], "after": "error"}])
async def test_a_script_file_is_a_list_or_an_object(script: Any, tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")

    assert (await hear(ScriptedProvider.from_file(path))).text == "Hi"


@pytest.mark.anyio
async def test_the_chunks_of_a_stream_may_be_listed() -> None:
    provider = ScriptedProvider([{"chunks": ["He", "", "llo"]}], after="repeat")
    deltas = [delta async for delta in provider.generate(ModelRequest(()))]

    assert deltas[:3] == [TextChunk("He"), TextChunk(""), TextChunk("llo")]
    assert (await hear(provider, stream=False)).deltas == 2


@pytest.mark.anyio
async def test_a_reply_may_have_invalid_ids_or_no_completion() -> None:
    calls = [{"name": "f", "id": ""}, {"name": "f", "id": "x"}, {"name": "f", "id": "x"}, {"name": "f"}]
    provider = ScriptedProvider([{"tool_calls": calls}, {"text": "Half", "completion": False}])

    assert [call.id for call in (await hear(provider, tool_choice=ToolChoice.NONE)).calls] == ["", "x", "x", "call_4"]
    assert [delta async for delta in provider.generate(ModelRequest(()))] == [TextChunk("Half")]


@pytest.mark.anyio
async def test_a_reply_may_have_an_echo() -> None:
    result = await hear(ScriptedProvider([{"text": "Hi", "echo": [{"type": "thinking"}]}]))

    assert result.completion.echo == [{"type": "thinking"}]


_CHUNK = {"choices": [{"delta": {"content": "Hi"}}]}
_END = {"choices": [{"finish_reason": "stop"}]}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param({"events": [_CHUNK, _END, "[DONE]"]}, id="events"),
        pytest.param({"events": [_CHUNK, _END], "chunk_size": 1}, id="byte by byte"),
        pytest.param({"body": f"data: {json.dumps(_CHUNK)}\n\ndata: {json.dumps(_END)}\n\n"}, id="text"),
        pytest.param({"body": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}}, id="JSON"),
    ],
)
async def test_a_scripted_response_body_is_read_like_the_response_of_an_endpoint(reply: dict[str, Any]) -> None:
    result = await hear(ScriptedProvider([{"wire": "chat", "notes": ["busy at first"], **reply}]))

    assert (result.text, result.completion.finish) == ("Hi", FinishReason.STOP)
    assert result.completion.notes == ("busy at first",)


@pytest.mark.anyio
async def test_an_interrupted_body_is_a_cut_reply_or_an_error() -> None:
    provider = ScriptedProvider(
        [
            {"wire": "chat", "events": [_CHUNK], "break": "the wire was cut"},
            {"wire": "chat", "events": [], "break": True},
            {"wire": "chat", "body": {"error": {"message": "too long", "code": "busy"}}, "status": 429},
        ]
    )
    result = await hear(provider)

    assert (result.text, result.completion.finish) == ("Hi", FinishReason.CUT)
    assert result.completion.notes == ("the reply broke off: the wire was cut",)
    with pytest.raises(ProviderError, match="broke"):
        await hear(provider)
    with pytest.raises(ProviderError, match="too long") as caught:
        await hear(provider)
    assert (caught.value.status, caught.value.code) == (429, "busy")


@pytest.mark.anyio
async def test_a_paused_reply_continues_with_the_next_body() -> None:
    def reply_part(text: str, stop: str) -> dict[str, Any]:
        body = {"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": stop}
        return {"wire": "messages", "body": body}

    provider = ScriptedProvider(
        [reply_part("One", "pause_turn"), reply_part(" two", "end_turn"), reply_part("One", "pause_turn"), "no wire"]
    )

    assert (await hear(provider)).text == "One two"
    with pytest.raises(ProviderError, match="does not continue a paused reply"):
        await hear(provider)
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param('{"replies": [\n{]}', "s.json:2:2: this is not JSON", id="no JSON"),
        pytest.param("[" * 100_000, "this is not JSON", id="too deep"),
        pytest.param("7", "s.json: the script: wrong value", id="a number"),
        pytest.param("{}", "there are no replies", id="no replies"),
        pytest.param('{"replies": "Hi"}', "the script.replies: wrong value (expected a list)", id="not a list"),
        pytest.param('{"replies": [], "then": 1}', "the script.then: unknown key (the keys are", id="an unknown key"),
        pytest.param('[{"calls": []}]', 'replies[0].calls: unknown key (did you mean "tool_calls"?)', id="half a key"),
        pytest.param('{"replies": [], "after": "x"}', 'after: invalid value (expected "error"', id="after"),
        pytest.param('["a", {"txt": "b"}]', "replies[1].txt", id="an unknown key of a reply"),
        pytest.param('[{"text": 7}]', "replies[0].text: wrong value (expected a string)", id="a wrong type"),
        pytest.param('[{"hang": 1}]', "replies[0].hang: wrong value (expected true or false)", id="no boolean"),
        pytest.param(
            '[{"chunk_size": true}]', "replies[0].chunk_size: wrong value (expected a number)", id="no number"
        ),
        pytest.param('[{"chunk_size": -1}]', "replies[0].chunk_size", id="a negative size"),
        pytest.param('[{"finish": "done"}]', "replies[0].finish: wrong value (expected stop or", id="finish"),
        pytest.param('[{"usage": {"tokens": 1}}]', "replies[0].usage.tokens", id="usage"),
        pytest.param(
            '[{"tool_calls": [{"arguments": {}}]}]', "replies[0].tool_calls[0].name", id="a call without a name"
        ),
        pytest.param('[{"tool_calls": ["f"]}]', "replies[0].tool_calls[0]", id="a call that is a string"),
        pytest.param('[{"error": {"status": "x"}}]', "replies[0].error.status", id="an error's status"),
        pytest.param("[7]", "replies[0]", id="a reply that is a number"),
        pytest.param('[{"chunks": ["a"], "text": "b"}]', "replies[0].chunks", id="text twice"),
        pytest.param('[{"wire": "telex", "body": ""}]', "replies[0].wire: wrong value (expected chat", id="a wire"),
        pytest.param('[{"wire": "chat"}]', "replies[0]: wrong value (expected either body", id="no body"),
        pytest.param('[{"wire": "chat", "body": "", "events": []}]', "expected either body", id="two bodies"),
        pytest.param('[{"wire": "chat", "body": "", "break": 1}]', "replies[0].break: wrong value", id="a break"),
    ],
)
def test_mistakes_in_a_file_are_reported_with_their_place(script: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(script, encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        ScriptedProvider.from_file(path)

    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_size_of_a_script_is_limited_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(["ä" * 10], ensure_ascii=False), encoding="utf-8")
    with pytest.raises(ConfigError, match="this is larger than 20 bytes"):
        read_file(path, max_bytes=20)
    assert read_file(path, max_bytes=24).replies


def test_the_error_for_a_missing_file_names_the_file() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: cannot be read: No such file"):
        ScriptedProvider.from_file("nowhere.json")
