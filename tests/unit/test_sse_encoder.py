"""A turn as server-sent events, byte for byte, and never a broken stream."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.inner import (
    DONE,
    ConversationNotFound,
    DialError,
    Event,
    Failure,
    Finished,
    InputReceived,
    InputRequested,
    LimitReached,
    Message,
    MessageCompleted,
    ProviderError,
    ReasoningDelta,
    RoundStarted,
    ServerChanged,
    ServerStartError,
    StatusChanged,
    StopReason,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    Turn,
    Usage,
    encode,
)

pytestmark = pytest.mark.anyio

CALL = ToolCallRequest("call_1", "add", {"a": 1})
TURN = Turn(
    Message.assistant("3"), (Message.assistant("3"),), StopReason.ANSWERED, 1, Usage(10, 5, 2, 1), notes=("a note",)
)
USAGE = '{"input_tokens":10,"output_tokens":5,"cached_tokens":2,"reasoning_tokens":1,"rounds":[],"cost_usd":null}'


async def turn(*steps: Event | BaseException) -> AsyncGenerator[Event, None]:
    for step in steps:
        if isinstance(step, BaseException):
            raise step
        yield step


async def encoded(*steps: Event | BaseException) -> list[str]:
    async with aclosing(encode(turn(*steps), model="m")) as lines:
        lines_read = [line async for line in lines]
    assert all(re.fullmatch(r"(event: [a-z_]+\n)?data: [^\n]+\n\n", line) for line in lines_read)
    assert lines_read[-1] == DONE
    return lines_read


def data(line: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(line.split("data: ", 1)[1], parse_constant=refuse)


def name(line: str) -> str:
    found = re.match("event: (.*)\n", line)
    return found[1] if found else ""


NAMED: list[tuple[str, Event, str]] = [
    ("status", StatusChanged("Working…"), 'event: status\ndata: {"text":"Working\\u2026"}\n\n'),
    ("reasoning", ReasoningDelta("hm\n\n"), 'event: reasoning\ndata: {"text":"hm\\n\\n"}\n\n'),
    ("a server", ServerChanged("maths", "ready"), 'event: status\ndata: {"server":"maths","state":"ready"}\n\n'),
    (
        "permission asked for",
        InputRequested("a1", "approval", {"server": "maths"}),
        'event: approval\ndata: {"id":"a1","server":"maths"}\n\n',
    ),
    (
        "permission given",
        InputReceived("a1", "approval", "once"),
        'event: approval_done\ndata: {"id":"a1","decision":"once"}\n\n',
    ),
    ("a question", InputRequested("q1", "question", {"a": 1}), 'event: question\ndata: {"id":"q1","a":1}\n\n'),
    (
        "an answer",
        InputReceived("q1", "question", "decline"),
        'event: question_done\ndata: {"id":"q1","action":"decline"}\n\n',
    ),
    (
        "a call",
        ToolCallStarted(CALL, "maths", "add.it"),
        'event: tool_call\ndata: {"id":"call_1","name":"add","arguments":{"a":1},"server":"maths"}\n\n',
    ),
    (
        "progress",
        ToolCallProgress("call_1", 0.5, 2, "half\nway"),
        'event: tool_progress\ndata: {"id":"call_1","progress":0.5,"total":2,"message":"half\\nway"}\n\n',
    ),
    (
        "a result",
        ToolCallFinished(ToolCallResult("call_1", success=True, content="3"), "maths", 0.123456),
        (
            'event: tool_result\ndata: {"tool_call_id":"call_1","success":true,"content":"3","error":null,'
            '"server":"maths","duration_s":0.1235}\n\n'
        ),
    ),
    (
        "a failure",
        ToolCallFinished(ToolCallResult.failed("call_1", Failure.TIMEOUT, "slow"), "", 1),
        (
            'event: tool_result\ndata: {"tool_call_id":"call_1","success":false,"content":"slow","error":"slow",'
            '"failure":"timeout","server":"","duration_s":1}\n\n'
        ),
    ),
]


@pytest.mark.parametrize(("event", "line"), [case[1:] for case in NAMED], ids=[case[0] for case in NAMED])
async def test_events_other_than_text_have_names(event: Event, line: str) -> None:
    assert await encoded(event) == [line, DONE]


@pytest.mark.parametrize("event", [RoundStarted(0), MessageCompleted(Message.user("x"))], ids=str)
async def test_events_of_no_use_to_chat_completions_clients_are_left_out(event: Event) -> None:
    assert await encoded(event) == [DONE]


async def test_text_is_sent_as_chat_completion_chunks() -> None:
    first, second, last, done, end = await encoded(TextDelta("Hel"), TextDelta("lo\n"), Finished(TURN))
    made = data(first)
    assert re.fullmatch("chatcmpl-[0-9a-f]{32}", made["id"])
    assert isinstance(made["created"], int)
    head = f'{{"id":"{made["id"]}","object":"chat.completion.chunk","created":{made["created"]},"model":"m","choices":'
    rest = '"logprobs":null,"finish_reason":'
    assert first == f'data: {head}[{{"index":0,"delta":{{"content":"Hel"}},{rest}null}}]}}\n\n'
    assert second == f'data: {head}[{{"index":0,"delta":{{"content":"lo\\n"}},{rest}null}}]}}\n\n'
    assert last == f'data: {head}[{{"index":0,"delta":{{}},{rest}"stop"}}]}}\n\n'
    assert done == f'event: done\ndata: {{"stop_reason":"answered","depth":1,"usage":{USAGE},"notes":["a note"]}}\n\n'
    assert end == "data: [DONE]\n\n"


async def test_two_turns_have_different_ids() -> None:
    first, second = [data((await encoded(TextDelta("a")))[0])["id"] for _ in range(2)]
    assert first != second


@pytest.mark.parametrize("reason", StopReason)
async def test_the_finish_reason_depends_on_the_stop_reason(reason: StopReason) -> None:
    ended = Turn(TURN.message, TURN.messages, reason, 0, Usage())
    chunk, done, _ = await encoded(Finished(ended))
    ends = {
        StopReason.ANSWERED: "stop",
        StopReason.CLIENT_TOOL_CALLS: "tool_calls",
        StopReason.REFUSED: "content_filter",
    }
    assert data(chunk)["choices"][0]["finish_reason"] == ends.get(reason, "length")
    assert data(done)["stop_reason"] == reason.value


async def test_any_text_is_encoded_as_ascii_without_line_breaks() -> None:
    foreign = "é\n\ndata: [DONE]\n\n\ud800\u2028\0\x1b[31m"
    chunks = await encoded(
        TextDelta(foreign), StatusChanged(foreign), ToolCallProgress("1", 1, None, foreign), ReasoningDelta(foreign)
    )
    assert all(line.isascii() for line in chunks)
    assert data(chunks[0])["choices"][0]["delta"]["content"] == foreign
    assert data(chunks[1])["text"] == data(chunks[2])["message"] == data(chunks[3])["text"] == foreign


async def test_nan_and_infinity_are_sent_as_null() -> None:
    odd = ToolCallRequest("1", "add", {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": 1.5})
    call, progress, _ = await encoded(ToolCallStarted(odd, "s"), ToolCallProgress("1", math.nan, math.inf, None))
    assert data(call)["arguments"] == {"a": None, "b": [None, {"c": None}], "d": 1.5}
    assert data(progress) == {"id": "1", "progress": None, "total": None, "message": None}


ERRORS: list[tuple[str, Exception, dict[str, Any]]] = [
    (
        "of the model",
        ProviderError("too many requests", status=429, code="rate_limit"),
        {"message": "too many requests", "type": "ProviderError", "status": 429, "code": "rate_limit"},
    ),
    ("of a server", ServerStartError("s", "it exited"), {"message": "s: it exited", "type": "ServerStartError"}),
    (
        "of a conversation",
        ConversationNotFound("x"),
        {"message": "there is no conversation 'x'", "type": "ConversationNotFound"},
    ),
    ("of the client", DialError("closed"), {"message": "closed", "type": "DialError"}),
    (
        "an unexpected exception",
        KeyError("secret"),
        {"message": "the turn failed with an unexpected error: see the log", "type": "KeyError"},
    ),
    (
        "an exception group",
        ExceptionGroup("secret", [ValueError("secret")]),
        {"message": "the turn failed with an unexpected error: see the log", "type": "ExceptionGroup"},
    ),
]


@pytest.mark.parametrize("before", [[], [TextDelta("Hel")]], ids=["at once", "after some text"])
@pytest.mark.parametrize(("error", "payload"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
async def test_an_error_is_an_event_and_the_stream_ends_as_usual(
    error: Exception, payload: dict[str, Any], before: list[Event]
) -> None:
    lines = await encoded(*before, error)
    assert len(lines) == len(before) + 2
    assert name(lines[-2]) == "error"
    assert data(lines[-2]) == payload


async def test_a_raised_limit_ends_the_stream_with_its_stop_reason() -> None:
    reached = Turn(TURN.message, TURN.messages, StopReason.MAX_DEPTH, 2, Usage(10, 5, 2, 1))
    _, chunk, done, _ = await encoded(TextDelta("Hel"), LimitReached("too many rounds", reached))
    assert data(chunk)["choices"][0]["finish_reason"] == "length"
    assert done == f'event: done\ndata: {{"stop_reason":"max_depth","depth":2,"usage":{USAGE},"notes":[]}}\n\n'


async def test_closing_the_stream_early_closes_the_turn() -> None:
    closed = False

    async def endless() -> AsyncGenerator[Event, None]:
        nonlocal closed
        try:
            while True:
                yield TextDelta("a")
        finally:
            await anyio.lowlevel.checkpoint()
            closed = True

    async with aclosing(encode(endless(), model="m")) as lines:
        async for _ in lines:
            break
    assert closed


async def test_a_cancelled_reader_closes_the_turn_and_receives_no_error() -> None:
    closed = False
    received: list[str] = []
    waiting = anyio.Event()

    async def hangs() -> AsyncGenerator[Event, None]:
        nonlocal closed
        try:
            yield TextDelta("a")
            waiting.set()
            await anyio.sleep_forever()
        finally:
            closed = True

    async def read() -> None:
        async with aclosing(encode(hangs(), model="m")) as lines:
            async for line in lines:
                received.append(line)  # noqa: PERF401 - a comprehension would lose the lines

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await waiting.wait()
        group.cancel_scope.cancel()
    assert closed
    assert len(received) == 1
