"""The two hosts behind one interface, so that a case gives both the same work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, Unpack

from benchmarks import floor
from benchmarks.server_entries import QUESTION, Servers
from dial_client import ClientOptions, DialClient, Finished, Limits, Message, TextDelta, Turn
from dial_client.extend import OpenAIProvider

_ALL_TOOLS = Limits(max_tools=1000, max_tool_bytes=10_000_000)


class Host(Protocol):
    """A model and its servers, ready to answer."""

    async def plain(self) -> str:
        """Return the answer to `QUESTION` without streaming."""

    async def streamed(self) -> str:
        """Return the answer to `QUESTION`, joined from streamed pieces."""


class _Floor:
    def __init__(self, host: floor.Floor) -> None:
        self.host = host

    async def plain(self) -> str:
        return await self.host.run([{"role": "user", "content": QUESTION}])

    async def streamed(self) -> str:
        return "".join([text async for text in self.host.stream([{"role": "user", "content": QUESTION}])])


class _Dial:
    def __init__(self, dial: DialClient) -> None:
        self.dial = dial

    async def plain(self) -> str:
        turn = await self.dial.run([Message.user(QUESTION)])
        _expect_no_failure(turn)
        return turn.text

    async def streamed(self) -> str:
        text = []
        async for event in self.dial.stream([Message.user(QUESTION)]):
            match event:
                case TextDelta(piece):
                    text.append(piece)
                case Finished(turn):
                    _expect_no_failure(turn)
        return "".join(text)


def _expect_no_failure(turn: Turn) -> None:
    # The cases check the answer, which does not reveal failed calls and missing servers.
    if turn.notes or not all(record.result.success for record in turn.tool_calls):
        raise RuntimeError(f"a turn failed: {turn.notes} {[record.result for record in turn.tool_calls]}")


def wrap_floor(host: floor.Floor) -> Host:
    """Return a plain loop as a host."""
    return _Floor(host)


@asynccontextmanager
async def open_client(url: str, servers: Servers, **options: Unpack[ClientOptions]) -> AsyncIterator[Host]:
    """Open this host with further options."""
    options["base_url"], options["limits"] = url, _ALL_TOOLS
    async with DialClient("chat:x", servers=servers, **options) as dial:
        yield _Dial(dial)


@asynccontextmanager
async def open_dial(base_url: str, servers: Servers, tool_format: str | None = None) -> AsyncIterator[Host]:
    """Open this host with its default settings, except that it offers all tools, like the floor."""
    async with open_client(base_url, servers, tool_format=tool_format) as dial:
        yield dial


@asynccontextmanager
async def open_dial_through_sdk(base_url: str, servers: Servers) -> AsyncIterator[Host]:
    """Open this host with a client of `openai` for its requests to the model."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        provider = OpenAIProvider(client, "x", api="chat")
        async with DialClient(provider, servers=servers, limits=_ALL_TOOLS) as dial:
            yield _Dial(dial)
