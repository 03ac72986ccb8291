"""Values of any type in a response of a model API: reading ends with a completion or a `ProviderError`."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.inner import Api, Completion, Delta, HttpProvider, ProviderError, ResponseStream, to_json_bytes
from tests.support.model_endpoint import Call, Recorded, Say, provider_of, write_reply

pytestmark = pytest.mark.anyio

PATHS = {Api.CHAT: "/chat/completions", Api.RESPONSES: "/responses", Api.MESSAGES: "/messages"}
SAID = Say("Hello", (Call("add", {"a": 1}), Call("now", {}, "call_2")), reasoning="Hm.", pieces=1)
ODD: list[Any] = [None, True, -1, 1e999, "x", "\ud800", [], [[]], [None], {}, {"x": {}}]


def answered(wire: Api, *, stream: bool) -> list[Any]:
    """Return the events of a complete response with text, reasoning and calls."""
    request = Recorded("POST", PATHS[wire], {}, b"", json.dumps({"stream": stream}).encode())
    chunks = write_reply(SAID, request).chunks
    lines = [chunk.removeprefix(b"data: ") for chunk in chunks if b"[DONE]" not in chunk]
    return [json.loads(line) for line in lines]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value, with each of its keys or indexes."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


async def read(provider: HttpProvider, values: list[Any], *, stream: bool) -> None:
    texts = [json.dumps(value) for value in values]
    body = "".join(f"data: {text}\n\n" for text in texts) if stream else texts[0]

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield body.encode()

    async def ask(refusal: ProviderError | None) -> AsyncGenerator[bytes, None]:
        if refusal is not None:
            raise refusal
        return pieces()

    deltas: list[Delta] = []
    reading = ResponseStream(provider.api, provider._create_parser(), provider.endpoint, [])
    try:
        async with aclosing(reading.read_deltas(ask)) as coming:
            deltas += [delta async for delta in coming]
    except ProviderError as error:
        assert str(error).isprintable()
    else:
        assert isinstance(deltas[-1], Completion)
        assert to_json_bytes(deltas[-1].echo)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wire", list(Api))
async def test_a_value_of_a_wrong_type_ends_with_a_completion_or_an_error(wire: Api, stream: bool) -> None:
    provider = provider_of("http://127.0.0.1:1", wire)
    whole = answered(wire, stream=stream)
    for at, event in enumerate(whole):
        for number, _ in enumerate(places(event)):
            for odd in ODD:
                values = copy.deepcopy(whole)
                holder, key = list(places(values[at]))[number]
                holder[key] = odd
                try:
                    await read(provider, values, stream=stream)
                except Exception as error:
                    raise AssertionError(f"{key!r}: {odd!r} in {json.dumps(event)[:300]}") from error
