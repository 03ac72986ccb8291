"""The deltas of a streamed reply, however its bytes are divided into reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import Api, CallChunk, Completion, Delta, ProviderError, ReasoningChunk, ResponseStream, TextChunk
from tests.support.model_endpoint import Call, Recorded, Say, events, provider_of, write_reply

WIRES = pytest.mark.parametrize("wire", list(Api))
PATHS = {Api.CHAT: "/chat/completions", Api.RESPONSES: "/responses", Api.MESSAGES: "/messages"}
SAID = Say("It is noon in Tokyo.", (Call("now", {"zone": "Asia/Tokyo"}),), reasoning="Where is the user?", pieces=5)


def write_events(wire: Api) -> list[bytes]:
    """Return the events of `SAID` in an API."""
    return list(write_reply(SAID, Recorded("POST", PATHS[wire], {}, b"", json.dumps({"stream": True}).encode())).chunks)


def receive(wire: Api, reads: Iterable[bytes]) -> list[Delta | ProviderError]:
    """Return the deltas of a reply whose body comes in these reads, and the error that ends it."""
    provider = provider_of("http://127.0.0.1:1", wire)
    received: list[Delta | ProviderError] = []

    async def read() -> AsyncGenerator[bytes, None]:
        for piece in reads:
            yield piece

    async def send(refusal: ProviderError | None) -> AsyncGenerator[bytes, None]:
        if refusal is not None:
            raise refusal
        return read()

    async def main() -> None:
        stream = ResponseStream(provider.api, provider._create_parser(), provider.endpoint, [])
        try:
            async with aclosing(stream.read_deltas(send)) as deltas:
                async for delta in deltas:
                    received.append(delta)  # noqa: PERF401 - those before an error count
        except ProviderError as error:
            received.append(error)

    asyncio.run(main())
    return received


def join(deltas: Iterable[Any]) -> list[Any]:
    """Return deltas with all pieces joined that follow each other."""
    joined: list[Any] = []
    for kind, group in groupby(deltas, type):
        pieces = list(group)
        is_text = kind in (TextChunk, ReasoningChunk)
        joined += [kind("".join(piece.text for piece in pieces))] if is_text else pieces
    return joined


@WIRES
def test_text_of_one_read_is_one_piece(wire: Api) -> None:
    reasoning, text, call, completion = receive(wire, [b"".join(write_events(wire))])
    assert (reasoning, text) == (ReasoningChunk(SAID.reasoning), TextChunk(SAID.text))
    assert isinstance(call, CallChunk)
    assert isinstance(completion, Completion)


@WIRES
def test_text_does_not_wait_for_the_next_read(wire: Api) -> None:
    deltas = receive(wire, write_events(wire))
    assert [type(delta) for delta in deltas].count(TextChunk) == 5
    assert join(deltas) == receive(wire, [b"".join(write_events(wire))])


@pytest.mark.parametrize("wire", list(Api))
@given(cuts=st.lists(st.integers(0, 6000)))
def test_no_division_into_reads_changes_a_reply(wire: Api, cuts: list[int]) -> None:
    body = b"".join(write_events(wire))
    ends = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    deltas = receive(wire, [body[start:end] for start, end in pairwise(ends)])
    assert join(deltas) == receive(wire, [body])


def test_text_before_an_error_in_the_same_read_is_handed_on() -> None:
    text = [{"choices": [{"delta": {"content": word}}]} for word in ("Half", " an")]
    failure = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
    first, error = receive(Api.CHAT, [b"".join(events(*text, failure, done=False).chunks)])
    assert first == TextChunk("Half an")
    assert isinstance(error, ProviderError)
    assert "Overloaded" in str(error)
