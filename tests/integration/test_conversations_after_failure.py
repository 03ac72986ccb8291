"""Failures of a model request: the same client can continue the stored conversation afterwards.

Each failure happens twice: at the start of a turn, and after a tool result. Then the user asks a third time. The
expected outcome is a truncated turn, an error with a one-line message, or a retry that the user does not notice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from mcp.server import MCPServer

from dial_client import DialClient, Finished, Limits, Message, ProviderError, StopReason, Turn
from tests.inner import Api
from tests.support.model_endpoint import (
    Answer,
    Bytes,
    Call,
    Raw,
    Recorded,
    Say,
    events,
    model_endpoint,
    one_json,
    provider_of,
    refuse,
)
from tests.unit.test_wire_history_rules import check_chat, check_messages, check_responses

pytestmark = pytest.mark.anyio

AT_ONCE = {"retry-after-ms": "1"}
NOT_AGAIN = {"x-should-retry": "false"}
ADD = Say(calls=(Call("add", {"a": 17, "b": 25}),))
FINE = Say("All is well.")
PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body>" + b"<p>x</p>" * 5000
GZIP = {"content-type": "text/event-stream", "content-encoding": "gzip"}

HALF_A_SENTENCE: dict[Api, list[Any]] = {
    Api.CHAT: [{"choices": [{"delta": {"content": "Half a"}}]}],
    Api.RESPONSES: [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Half a"},
    ],
    Api.MESSAGES: [
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half a"}},
    ],
}
HALF_A_CALL: dict[Api, list[Any]] = {
    Api.CHAT: [
        {
            "choices": [
                {
                    "delta": {
                        "tool_calls": [{"index": 0, "id": "h", "function": {"name": "add", "arguments": '{"a": 1'}}]
                    }
                }
            ]
        }
    ],
    Api.RESPONSES: [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "function_call", "call_id": "h", "name": "add", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a": 1'},
    ],
    Api.MESSAGES: [
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "h", "name": "add", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1'}},
    ],
}
ERROR_EVENTS: dict[Api, list[Any]] = {
    Api.CHAT: [{"error": {"message": "Overloaded", "code": "overloaded_error"}}],
    Api.RESPONSES: [{"type": "error", "message": "Overloaded", "code": "overloaded_error"}],
    Api.MESSAGES: [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
}


@dataclass(frozen=True)
class Error:
    """An expected `ProviderError`, and the text that arrived before it."""

    says: str
    status: int | None = None
    code: str | None = None
    retry_after: float | None = None
    stored: str = ""


@dataclass(frozen=True)
class Cut:
    """An expected `Turn` that is truncated, with the text that arrived."""

    text: str


RECOVERED = None
"""The expectation that a retry succeeds and the user gets the answer."""

Expected = Error | Cut | None
Row = tuple[Sequence[Answer], Expected]


def refused(status: int, code: str = "an_error", **headers: str) -> Row:
    error = Error(f"answered {status}: no", status, code)
    return [refuse(status, headers=headers or NOT_AGAIN, code=code)], error


EITHER_WAY: dict[str, Row] = {
    **{f"refused with {status}": refused(status) for status in (400, 401, 403, 404, 413, 422, 500, 501, 503, 529)},
    "busy for a moment": ([refuse(503, headers=AT_ONCE), refuse(429, headers=AT_ONCE)], RECOVERED),
    "busy for good": ([refuse(529, headers=AT_ONCE)] * 4, Error("answered 529", 529, "an_error", 0.001)),
    "loading": ([refuse(503, "Loading model", AT_ONCE)] * 6, RECOVERED),
    "a wait in seconds": ([refuse(429, headers={"retry-after": "61"})], Error("429", 429, "an_error", 61)),
    "a wait in milliseconds": ([refuse(429, headers={"retry-after-ms": "61500"})], Error("429", 429, "an_error", 61.5)),
    "a wait until a date": (
        [refuse(429, headers={"retry-after": "Fri, 31 Dec 2999 23:59:59 GMT"})], Error("429", 429, "an_error")
    ),
    "an absurd wait": ([refuse(429, headers={"retry-after": "1e30"})], Error("429", 429, "an_error", 1e30)),
    "no money left": ([refuse(429, code="insufficient_quota")], Error("429", 429, "insufficient_quota")),
    "a redirect": (
        [Raw((), 302, {"location": "http://elsewhere.test"})], Error("http://elsewhere.test", 302, "redirect")
    ),
    "a page as a refusal": ([Raw((PAGE,), 502, NOT_AGAIN)], Error("answered 502: Sign in", 502)),
    "a page as an answer": ([Raw((PAGE,))], Error("Sign in", code="cut")),
    "an empty body": ([Raw(())], Error("sent no reply", code="cut")),
    "blanks": ([Raw((b" \n" * 100,))], Error("sent no reply", code="cut")),
    "half of a JSON text": ([Raw((b'{"choices": [{"mess',))], Error("sent text that is not JSON", code="cut")),
    "an error with a good status": ([one_json({"error": {"message": "down", "code": 502}})], Error("down", 502, "502")),
    "garbage": ([Raw((bytes(range(256)) * 9,))], Error("sent no reply", code="cut")),
    "what is not gzip": ([Raw((b"data: x\n\n",), 200, GZIP)], Error("broke", code="connection")),
    "what is not HTTP": ([Bytes(b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n")], Error("broke", code="connection")),
    "an endless head": ([Bytes(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000)], Error("broke", code="connection")),
    "closed without a byte": ([Bytes()], RECOVERED),
    "reset without a byte": ([Bytes(reset=True)], RECOVERED),
    "closed behind the head": ([Raw(cut=True)], Error("broke", code="connection")),
}  # fmt: skip


def in_a_stream(wire: Api) -> dict[str, Row]:
    sentence, called = HALF_A_SENTENCE[wire], HALF_A_CALL[wire]
    return {
        "cut in a sentence": ([events(*sentence, done=False, cut=True)], Cut("Half a")),
        "ended in a sentence": ([events(*sentence, done=False)], Cut("Half a")),
        "cut in a chunk": ([half_a_chunk(sentence)], Cut("Half a")),
        "cut in a call": ([events(*called, done=False, cut=True)], Cut("[Unable to complete task")),
        "ended in a call": ([events(*called, done=False)], Cut("[Unable to complete task")),
        "garbage behind a sentence": ([events(*sentence, "\x00{", "}", done=False)], Cut("Half a")),
        "overloaded": ([events(*ERROR_EVENTS[wire], done=False)], Error("Overloaded", code="overloaded_error")),
        "overloaded in a sentence": (
            [events(*sentence, *ERROR_EVENTS[wire], done=False)],
            Error("Overloaded", code="overloaded_error", stored="Half a"),
        ),
        "overloaded in a call": (
            [events(*called, *ERROR_EVENTS[wire], done=False)],
            Error("Overloaded", code="overloaded_error"),
        ),
    }


def half_a_chunk(chunks: Sequence[Any]) -> Bytes:
    body = b"".join(events(*chunks, done=False).chunks)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return Bytes(head + b"%x\r\n%s" % (len(body) + 100, body))


def calculator() -> MCPServer:
    server = MCPServer("calculator", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def ask(dial: DialClient, conversation: list[Message], text: str, *, stream: bool) -> Turn | ProviderError:
    """Run a turn and append its messages to the conversation, as an embedding program does."""
    messages = (*conversation, Message.user(text))
    try:
        if stream:
            async with aclosing(dial.stream(messages)) as heard:
                [turn] = [event.turn async for event in heard if isinstance(event, Finished)]
        else:
            turn = await dial.run(messages)
    except ProviderError as error:
        conversation += error.messages
        return error
    conversation += turn.messages
    return turn


def check(outcome: Turn | ProviderError, expected: Expected) -> None:
    if isinstance(expected, Error):
        assert isinstance(outcome, ProviderError)
        assert expected.says in str(outcome)
        assert str(outcome).isprintable()
        assert len(str(outcome)) < 700
        assert (outcome.status, outcome.code) == (expected.status, expected.code)
        assert expected.retry_after in (None, outcome.retry_after)
        assert expected.stored in outcome.messages[-1].text
        return
    assert isinstance(outcome, Turn)
    assert outcome.messages[-1] == outcome.message
    if isinstance(expected, Cut):
        assert outcome.stop_reason is StopReason.TRUNCATED
        assert outcome.text.startswith(expected.text)
    else:
        assert (outcome.stop_reason, outcome.text) == (StopReason.ANSWERED, FINE.text)


def check_request(wire: Api, request: Recorded) -> None:
    sent = request.json
    if wire is Api.CHAT:
        check_chat(sent["messages"])
    elif wire is Api.RESPONSES:
        check_responses((sent.get("instructions", ""), sent["input"]))
    else:
        check_messages((sent.get("system", ""), sent["messages"]))


async def go_through(
    wire: Api, answers: Sequence[Answer], expected: Expected, *, stream: bool, idle_timeout: float = 60.0
) -> None:
    good = [] if expected else [FINE]
    with model_endpoint([*answers, *good, ADD, *answers, *good, FINE]) as endpoint:
        provider = provider_of(endpoint, wire, quirks={"idle_timeout": idle_timeout})
        async with DialClient(provider, servers={"calculator": calculator()}, limits=Limits(timeout=90)) as dial:
            conversation: list[Message] = []
            check(await ask(dial, conversation, "Hello?", stream=stream), expected)
            check(await ask(dial, conversation, "What is 17 + 25?", stream=stream), expected)
            check(await ask(dial, conversation, "Are you there?", stream=stream), RECOVERED)

    for request in endpoint.requests:
        check_request(wire, request)
    last = json.dumps(endpoint.requests[-1].json)
    assert all(asked in last for asked in ("Hello?", "What is 17 + 25?", "42", "Are you there?"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", EITHER_WAY)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", list(Api))
async def test_the_conversation_continues_after_a_failure(wire: Api, stream: bool, name: str) -> None:
    await go_through(wire, *EITHER_WAY[name], stream=stream)


@pytest.mark.parametrize("name", in_a_stream(Api.CHAT))
@pytest.mark.parametrize("wire", list(Api))
async def test_the_conversation_continues_after_a_broken_stream(wire: Api, name: str) -> None:
    await go_through(wire, *in_a_stream(wire)[name], stream=True)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("when", ["streamed", "whole", "in a sentence"])
@pytest.mark.parametrize("wire", list(Api))
async def test_the_conversation_continues_after_an_idle_timeout(
    wire: Api, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial_client.providers.http.http_provider._UNSTREAMED_TIMEOUT", 2)
    row: Row = ([Raw(hang=True)], Error("did not answer in time", code="timeout"))
    if when == "in a sentence":
        row = ([events(*HALF_A_SENTENCE[wire], done=False, hang=True)], Cut("Half a"))
    await go_through(wire, *row, stream=when != "whole", idle_timeout=2)
