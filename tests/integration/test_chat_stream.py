"""Streamed chat completions of real servers: no tool call is lost, mixed with another call, or invented."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dial_client import DialClient
from tests.inner import CHAT, ChatProvider, Endpoint, EndpointProfile, FinishReason, Message, ProviderError
from tests.support.model_endpoint import ParsedReply, Raw, Say, events, hear, model_endpoint, one_json

pytestmark = pytest.mark.anyio

ADD, MUL = ("add", {"x": 1}), ("mul", {"y": 2})
STOP, CALLS, LENGTH = FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.LENGTH
REFUSED, CUT = FinishReason.REFUSED, FinishReason.CUT


def delta(value: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": value, "finish_reason": finish, **more}]}


def piece(name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """Return a fragment of a tool call; fields that are not given are left out, and `...` is sent as null."""
    function = {"name": name, "arguments": arguments}
    call = {"function": {key: value for key, value in function.items() if value is not None}} | more
    return json.loads(json.dumps(call, default=lambda _: None))  # type: ignore[no-any-return]


def calls(*pieces: dict[str, Any], finish: Any = "tool_calls", together: bool = False) -> Raw:
    chunks = (
        [delta({"tool_calls": list(pieces)})] if together else [delta({"tool_calls": [single]}) for single in pieces]
    )
    return events(*chunks, delta({}, finish))


async def ask(answer: Any, *messages: Message, profile: EndpointProfile = CHAT, **request: Any) -> ParsedReply:
    with model_endpoint([answer]) as endpoint:
        provider = ChatProvider("m", Endpoint(f"{endpoint.url}/v1"), profile)
        try:
            return await hear(provider, *messages, **request)
        finally:
            await provider.aclose()


A1, A2 = '{"x"', ": 1}"
M1, M2 = '{"y"', ": 2}"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(calls(piece("add", A1, index=0, id="a"), piece(None, A2, index=0)), [ADD], id="as OpenAI does"),
        pytest.param(
            calls(
                piece("add", A1, index=0, id="a"),
                piece("mul", M1, index=1, id="b"),
                piece(None, A2, index=0),
                piece(None, M2, index=1),
            ),
            [ADD, MUL],
            id="pieces of two calls in turn",
        ),
        pytest.param(
            calls(piece("add", A1 + A2, index=0, id="a"), piece("mul", M1 + M2, index=0, id="b")),
            [ADD, MUL],
            id="the index is always 0",
        ),
        pytest.param(
            calls(
                piece("add", A1, index=0, id="a"),
                piece("mul", M1, index=0, id="b"),
                piece(None, A2, index=0, id="a"),
                piece(None, M2, index=0, id="b"),
            ),
            [ADD, MUL],
            id="the index is always 0, in turn, told apart by ids",
        ),
        pytest.param(
            calls(
                piece("add", A1, index=0, id="a"),
                piece("add", A1, index=0, id="b"),
                piece(None, A2, index=0, id="a"),
                piece(None, A2, index=0, id="b"),
            ),
            [ADD, ADD],
            id="one tool twice in turn, the index is always 0",
        ),
        pytest.param(
            calls(piece("now"), piece("today")), [("now", {}), ("today", {})], id="no index, no ids and no arguments"
        ),
        pytest.param(
            events(delta({"tool_calls": [piece("add", A1 + A2, index=0, id="a")]}, "tool_calls"), done=False, cut=True),
            [ADD],
            id="the connection breaks behind the end",
        ),
        pytest.param(
            calls(piece("add", A1 + A2, index=0), piece("mul", M1 + M2, index=0)), [ADD, MUL], id="index 0 and no ids"
        ),
        pytest.param(
            calls(piece("add", A1 + A2, index=0), piece("add", '{"x": 2}', index=0)),
            [ADD, ("add", {"x": 2})],
            id="index 0, no ids, one tool twice",
        ),
        pytest.param(
            calls(piece("add", A1, id="a"), piece(None, A2), piece("mul", M1, id="b"), piece(None, M2)),
            [ADD, MUL],
            id="no index",
        ),
        pytest.param(
            calls(piece("add", A1, index=..., id="a"), piece(None, A2, index=...), piece("mul", M1 + M2, index=...)),
            [ADD, MUL],
            id="the index is null",
        ),
        pytest.param(
            calls(piece("add", A1 + A2), piece("add", A1 + A2), piece("mul", M1 + M2), together=True),
            [ADD, ADD, MUL],
            id="whole calls in one chunk, no index and no ids",
        ),
        pytest.param(
            calls(piece("add", A1, index=1, id="a"), piece(None, A2, index=1), piece("mul", M1 + M2, index=2, id="b")),
            [ADD, MUL],
            id="the index starts at 1",
        ),
        pytest.param(
            calls(piece("mul", M1 + M2, index=7, id="b"), piece("add", A1 + A2, index=3, id="a")),
            [ADD, MUL],
            id="indexes with gaps, backwards",
        ),
        pytest.param(
            calls(*(piece("add", text, index=0, id="a") for text in ("", A1, A2))), [ADD], id="id and name repeated"
        ),
        pytest.param(
            calls(*(piece("add", text, id="a") for text in ("", A1, A2))), [ADD], id="id and name repeated, no index"
        ),
        pytest.param(
            calls(*(piece("add", text, index=0) for text in ("", A1, A2))), [ADD], id="the name repeated, no id"
        ),
        pytest.param(
            calls(piece("add", A1 + A2, index=0), piece("add", "\n", index=0)),
            [ADD],
            id="the name repeated with a blank",
        ),
        pytest.param(
            calls(piece("add", A1 + A2, index=0, id="a"), piece("add", A1 + A2, index=0, id="a")),
            [ADD],
            id="the whole call repeated",
        ),
        pytest.param(
            calls(piece("add", A1 + A2, id="a"), piece("add", '{"x": 2}', id="a")),
            [ADD, ("add", {"x": 2})],
            id="one tool twice under one id",
        ),
        pytest.param(
            calls(piece("a", "", index=0, id="a"), piece("dd", "", index=0), piece(None, A1 + A2, index=0)),
            [ADD],
            id="the name is split",
        ),
        pytest.param(
            calls(piece("add", A1, index=0, id="a"), piece("", A2, index=0, id="")), [ADD], id="continued with empty id"
        ),
        pytest.param(
            calls(piece("add", A1, index=0, id="a"), piece(..., A2, index=0, id=...)), [ADD], id="continued with nulls"
        ),
        pytest.param(
            calls(piece("add", A1, index=0), piece(None, A2, index=0, id="late")), [ADD], id="the id comes late"
        ),
        pytest.param(
            calls(piece("add", A1 + A2, index=0, id="same"), piece("mul", M1 + M2, index=1, id="same")),
            [ADD, MUL],
            id="both calls have one id",
        ),
        pytest.param(
            calls(piece("add", A1 + A2, id="same"), piece("mul", M1 + M2, id="same")),
            [ADD, MUL],
            id="both calls have one id, and no index",
        ),
        pytest.param(calls(piece("add", {"x": 1}, index=0, id="a")), [ADD], id="the arguments are an object"),
        pytest.param(calls(piece("now", index=0, id="a")), [("now", {})], id="no arguments"),
        pytest.param(calls(piece("now", ..., index=0, id="a")), [("now", {})], id="the arguments are null"),
        pytest.param(calls(piece("now", "  ", index=0, id="a")), [("now", {})], id="the arguments are blank"),
        pytest.param(
            calls(piece("add", A1 + A2, index=0, id="a"), piece(None, "", index=0), {"index": 1}),
            [ADD],
            id="empty pieces at the end",
        ),
        pytest.param(calls(piece("add", A1 + A2, index=0, id="a"), finish="stop"), [ADD], id="finish is stop"),
        pytest.param(calls(piece("add", A1 + A2, index=0, id="a"), finish="STOP"), [ADD], id="finish is STOP"),
        pytest.param(calls(piece("add", A1 + A2, index=0, id="a"), finish=None), [ADD], id="no finish, but [DONE]"),
        pytest.param(
            events(delta({"tool_calls": [piece("add", A1 + A2, index=0, id="a")]}, "tool_calls"), done=False),
            [ADD],
            id="finish beside the call, and no [DONE]",
        ),
        pytest.param(
            events(delta({"tool_calls": piece("add", A1 + A2, index=0, id="a")}, "stop")), [ADD], id="one call, no list"
        ),
        pytest.param(
            events(
                delta({"function_call": {"name": "add", "arguments": A1}}),
                delta({"function_call": {"arguments": A2}}),
                delta({}, "function_call"),
            ),
            [ADD],
            id="the form of 2023",
        ),
        pytest.param(
            events({"choices": []}, {"choices": None}, {"id": "x"}, delta(None), delta({}, "stop"), {"choices": []}),
            [],
            id="chunks that say nothing",
        ),
    ],
)
async def test_streamed_calls_are_assembled_from_every_known_variant(answer: Raw, expected: list[Any]) -> None:
    heard = await ask(answer)

    assert heard.asked == expected
    assert heard.completion.finish is (CALLS if expected else STOP)
    ids = [call.id for call in heard.calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def whole(message: Any, finish: Any = "stop", **more: Any) -> Raw:
    return one_json({"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more})


MULTIPLY = {"function": {"name": "mul", "arguments": M1 + M2}}
CALL = {"id": "a", "type": "function", "function": {"name": "add", "arguments": A1 + A2}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        pytest.param(whole({"content": "Hello"}), "Hello", [], id="text"),
        pytest.param(whole({"content": None, "tool_calls": [CALL]}, "tool_calls"), "", [ADD], id="a call"),
        pytest.param(whole({"content": "", "tool_calls": [CALL, CALL | MULTIPLY]}), "", [ADD, MUL], id="one id twice"),
        pytest.param(whole({"content": "Hello", "tool_calls": None}), "Hello", [], id="calls are null"),
        pytest.param(whole({"content": [{"type": "text", "text": "Hel"}, "lo"]}), "Hello", [], id="a list of parts"),
    ],
)
async def test_a_response_without_streaming_is_read_even_if_streaming_was_requested(
    answer: Raw, text: str, expected: list[Any], stream: bool
) -> None:
    heard = await ask(answer, stream=stream)

    assert (heard.text, heard.asked) == (text, expected)
    assert heard.completion.finish is (CALLS if expected else STOP)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": nu', id="in the middle"),
        pytest.param(b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": null}]}', id="behind the end"),
    ],
)
async def test_a_json_response_without_finish_reason_on_a_broken_connection_is_an_error(text: bytes) -> None:
    with pytest.raises(ProviderError, match="broke"):
        await ask(Raw((text,), cut=True))


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        pytest.param(events(delta({"content": "Hi"}), delta({}, "stop")), STOP, id="stop"),
        pytest.param(events(delta({"content": "Hi"}), delta({}, "end_turn")), STOP, id="another's word"),
        pytest.param(events(delta({"content": "Hi"}), delta({}, "length")), LENGTH, id="length"),
        pytest.param(events(delta({"content": "Hi"}), delta({}, "content_filter")), REFUSED, id="content_filter"),
        pytest.param(events(delta({"content": "Hi"}), delta({}, "abort")), CUT, id="an unknown word"),
        pytest.param(events(delta({"content": "Hi"})), STOP, id="no word, but [DONE]"),
        pytest.param(events(delta({"content": "Hi"}), done=False), CUT, id="no word at all"),
        pytest.param(events(delta({"content": "Hi"}), done=False, cut=True), CUT, id="the connection breaks"),
        pytest.param(
            Raw((b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: {"cho',), cut=True),
            CUT,
            id="the connection breaks in an event",
        ),
        pytest.param(
            events(delta({"content": "Hi"}), delta({}, "stop"), done=False, cut=True),
            STOP,
            id="the connection breaks behind the end",
        ),
        pytest.param(events(delta({"refusal": "Hi"}), delta({}, "stop")), REFUSED, id="a refusal"),
    ],
)
async def test_finish_reasons_are_distinguished(answer: Raw, finish: FinishReason) -> None:
    heard = await ask(answer)

    assert heard.text == "Hi"
    assert heard.completion.finish is finish


@pytest.mark.parametrize(
    "end",
    [
        pytest.param([delta({}, "length")], id="length"),
        pytest.param([delta({}, "content_filter")], id="content_filter"),
        pytest.param([delta({}, "error")], id="error"),
        pytest.param([], id="no word"),
    ],
)
async def test_an_incomplete_reply_has_no_calls(end: list[Any]) -> None:
    chunk = delta({"tool_calls": [piece("add", A1 + A2, index=0, id="a")]})

    heard = await ask(events(chunk, *end, done=False))

    assert heard.calls == []
    assert "the reply is incomplete: its tool calls are not run" in heard.completion.notes
    assert heard.completion.echo is None


@pytest.mark.parametrize(
    "text", ['{"x": ', "{'x': 1}", "[1]", '"x"', "7", '{"x": 1}{"y": 2}', '{"x": NaN}', "x" * 1000]
)
async def test_arguments_that_cannot_be_parsed_are_kept_unchanged(text: str) -> None:
    heard = await ask(calls(piece("add", text, index=0, id="a")))

    assert heard.calls[0].arguments == {}
    assert heard.calls[0].unreadable == text


@pytest.mark.parametrize(
    "finish", ["malformed_function_call", "MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL"]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_malformed_call_without_content_is_an_empty_reply(finish: str, stream: bool) -> None:
    whole = {"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": finish}]}
    reply = await ask(
        events(delta({"role": "assistant"}), delta({}, finish)) if stream else one_json(whole), stream=stream
    )

    assert (reply.text, reply.calls, reply.completion.finish) == ("", [], STOP)


async def test_a_malformed_call_after_text_leaves_the_reply_incomplete() -> None:
    reply = await ask(events(delta({"content": "I look."}), delta({}, "malformed_function_call")))

    assert (reply.text, reply.completion.finish) == ("I look.", CUT)


async def test_after_a_malformed_call_the_model_is_asked_again() -> None:
    malformed = events(delta({"role": "assistant"}), delta({}, "malformed_function_call"))
    with model_endpoint([malformed, Say("Hi")]) as endpoint:
        async with DialClient(ChatProvider("m", Endpoint(f"{endpoint.url}/v1"), CHAT)) as dial:
            turn = await dial.run("Hello")

    assert (turn.text, len(endpoint.requests)) == ("Hi", 2)
