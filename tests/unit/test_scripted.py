"""The scripted model plays what its file says, on any event loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client.errors import ConfigError, ProviderError
from dial_client.messages.message import Message, ToolCallRequest
from dial_client.model import FinishReason, ModelRequest, TextChunk, ToolChoice
from dial_client.providers.scripted import ScriptedProvider, ScriptedReply
from dial_client.turn_data.token_usage import Usage
from tests.support.model_endpoint import hear


@pytest.mark.anyio
async def test_replies_are_played_in_their_order_and_requests_are_kept() -> None:
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
async def test_a_reply_says_all_that_a_model_can_say() -> None:
    reply = {
        "text": "Well",
        "finish": "length",
        "usage": {"input_tokens": 3, "output_tokens": 2},
        "notes": ["cut"],
        "tool_calls": [{"name": "now", "id": "x"}],
    }
    heard = await hear(ScriptedProvider([reply]))

    assert heard.completion.finish is FinishReason.LENGTH
    assert heard.completion.usage == Usage(3, 2)
    assert heard.completion.notes == ("cut",)
    assert heard.calls == [], "only a whole reply has calls"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"x": 1}', ToolCallRequest("a", "f", {"x": 1})),
        ("{'x': 1", ToolCallRequest("a", "f", {}, unreadable="{'x': 1")),
        ("[1]", ToolCallRequest("a", "f", {}, unreadable="[1]")),
    ],
)
async def test_arguments_may_be_what_a_model_wrote(arguments: str, expected: ToolCallRequest) -> None:
    call = {"id": "a", "name": "f", "arguments": arguments}

    assert (await hear(ScriptedProvider([{"tool_calls": [call]}]))).calls == [expected]


@pytest.mark.anyio
async def test_a_stream_comes_in_pieces_and_an_answer_does_not() -> None:
    provider = ScriptedProvider([{"text": "Hello", "chunk_size": 2}], after="repeat")

    assert (await hear(provider)).deltas == 4
    assert (await hear(provider, stream=False)).deltas == 2


@pytest.mark.anyio
async def test_behind_the_last_reply_comes_an_error_or_the_last_again() -> None:
    ends, repeats = ScriptedProvider(["Hi"]), ScriptedProvider(["Hi"], after="repeat")
    for provider in (ends, repeats):
        await hear(provider)

    with pytest.raises(ProviderError, match="ends after 1"):
        await hear(ends)
    assert (await hear(repeats)).text == "Hi"
    with pytest.raises(ProviderError, match="ends after 0"):
        await hear(ScriptedProvider([], after="repeat"))


@pytest.mark.anyio
async def test_an_error_comes_behind_the_text_so_far() -> None:
    error = {"message": "busy", "status": 503, "code": "overloaded", "retry_after": 2}
    provider = ScriptedProvider([{"text": "Half", "error": error}], after="repeat")
    texts = []

    for _ in range(2):
        with pytest.raises(ProviderError, match="busy") as caught:
            async for delta in provider.generate(ModelRequest(())):
                texts.append(delta)  # noqa: PERF401 - what came before the error counts
        assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "overloaded", 2)
    assert texts == [TextChunk("Half"), TextChunk("Half")]


@pytest.mark.anyio
async def test_a_reply_that_hangs_does_so_until_it_is_cancelled() -> None:
    heard = []
    with anyio.move_on_after(0.05) as scope:
        async for delta in ScriptedProvider([{"text": "Half", "hang": True}]).generate(ModelRequest(())):
            heard.append(delta)  # noqa: PERF401 - what came before the silence counts

    assert scope.cancelled_caught
    assert heard == [TextChunk("Half")]


@pytest.mark.anyio
async def test_replies_may_be_data_of_python() -> None:
    call = ToolCallRequest("a", "f", {})
    provider = ScriptedProvider([ScriptedReply(text="Hi", tool_calls=(call,)), {"tool_calls": (call,)}])

    assert (await hear(provider)).calls == (await hear(provider)).calls == [call]


@pytest.mark.anyio
@pytest.mark.parametrize("script", [["Hi"], {"replies": ["Hi"]}, {"replies": [{"text": "Hi"}], "after": "error"}])
async def test_a_file_is_a_list_or_an_object(script: Any, tmp_path: Path) -> None:
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
async def test_a_reply_may_do_what_no_provider_should() -> None:
    calls = [{"name": "f", "id": ""}, {"name": "f", "id": "x"}, {"name": "f", "id": "x"}, {"name": "f"}]
    provider = ScriptedProvider([{"tool_calls": calls}, {"text": "Half", "completion": False}])

    assert [call.id for call in (await hear(provider, tool_choice=ToolChoice.NONE)).calls] == ["", "x", "x", "call_4"]
    assert [delta async for delta in provider.generate(ModelRequest(()))] == [TextChunk("Half")]


@pytest.mark.anyio
async def test_what_goes_back_with_a_message_may_be_given() -> None:
    heard = await hear(ScriptedProvider([{"text": "Hi", "echo": [{"type": "thinking"}]}]))

    assert heard.completion.echo == [{"type": "thinking"}]


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
    heard = await hear(ScriptedProvider([{"wire": "chat", "notes": ["busy at first"], **reply}]))

    assert (heard.text, heard.completion.finish) == ("Hi", FinishReason.STOP)
    assert heard.completion.notes == ("busy at first",)


@pytest.mark.anyio
async def test_an_answer_that_breaks_off_is_cut_or_none_at_all() -> None:
    provider = ScriptedProvider(
        [
            {"wire": "chat", "events": [_CHUNK], "break": "the wire was cut"},
            {"wire": "chat", "events": [], "break": True},
            {"wire": "chat", "body": {"error": {"message": "too long", "code": "busy"}}, "status": 429},
        ]
    )
    heard = await hear(provider)

    assert (heard.text, heard.completion.finish) == ("Hi", FinishReason.CUT)
    assert heard.completion.notes == ("the reply broke off: the wire was cut",)
    with pytest.raises(ProviderError, match="broke"):
        await hear(provider)
    with pytest.raises(ProviderError, match="too long") as caught:
        await hear(provider)
    assert (caught.value.status, caught.value.code) == (429, "busy")


@pytest.mark.anyio
async def test_what_pauses_goes_on_with_the_next_answer() -> None:
    def reply_part(text: str, stop: str) -> dict[str, Any]:
        body = {"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": stop}
        return {"wire": "messages", "body": body}

    provider = ScriptedProvider(
        [reply_part("One", "pause_turn"), reply_part(" two", "end_turn"), reply_part("One", "pause_turn"), "no wire"]
    )

    assert (await hear(provider)).text == "One two"
    with pytest.raises(ProviderError, match="no more of a reply that paused"):
        await hear(provider)
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param('{"replies": [\n{]}', "s.json:2:2: this is no JSON", id="no JSON"),
        pytest.param("[" * 100_000, "this is no JSON", id="too deep"),
        pytest.param("7", "s.json: the script: wrong value", id="a number"),
        pytest.param("{}", "there are no replies", id="no replies"),
        pytest.param('{"replies": "Hi"}', "the script.replies: wrong value (expected a list)", id="not a list"),
        pytest.param('{"replies": [], "then": 1}', "the script.then: unknown key (the keys are", id="an unknown key"),
        pytest.param('[{"calls": []}]', 'replies[0].calls: unknown key (did you mean "tool_calls"?)', id="half a key"),
        pytest.param(
            '{"replies": [], "after": "x"}', 'after: this is not a value for it (expected "error"', id="after"
        ),
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
        pytest.param('[{"tool_calls": ["f"]}]', "replies[0].tool_calls[0]", id="a call that is none"),
        pytest.param('[{"error": {"status": "x"}}]', "replies[0].error.status", id="an error's status"),
        pytest.param("[7]", "replies[0]", id="a reply that is none"),
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


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: cannot be read: No such file"):
        ScriptedProvider.from_file("nowhere.json")
