"""Sessions of a server that serve one party each: how many there are, and when they end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.inner import (
    MAX_SEPARATE,
    SEPARATE_SECONDS,
    BackgroundTasks,
    LaterCallers,
    SeparateSessions,
    ServerError,
    ServerGone,
)
from tests.support.fakes import virtual_time

pytestmark = pytest.mark.anyio


class Caller:
    """A call of a client without features."""

    is_resumable = False
    features: frozenset[str] = frozenset()

    async def answer(self, feature: str, _: str, __: Any) -> Any:
        raise AssertionError(feature)

    def hand_on(self, feature: str, _: str, __: Any) -> Any:
        raise AssertionError(feature)

    def take_input(self, _: str) -> None:
        pass

    def begin_task(self) -> None:
        pass

    async def complete_elicitation(self, server: str, _: str) -> None:
        raise AssertionError(server)


class Server:
    """A server that runs until it is stopped."""

    def __init__(self) -> None:
        self.stopped = anyio.Event()

    def start(self, tasks: BackgroundTasks) -> None:
        pass

    async def wait_settled(self) -> bool:
        return True

    def stop(self) -> None:
        self.stopped.set()

    async def wait_ended(self) -> None:
        await self.stopped.wait()


@asynccontextmanager
async def sessions() -> AsyncGenerator[SeparateSessions[Server]]:
    separate = SeparateSessions("it", lambda _: Server(), LaterCallers())
    separate.tasks = await BackgroundTasks.open()
    tasks = separate.tasks
    yield separate
    separate.stop()
    await separate.wait_ended()
    await tasks.aclose()


@virtual_time
async def test_a_session_ends_when_its_party_makes_no_call_for_a_while() -> None:
    async with sessions() as separate:
        async with separate.use("ann", Caller()) as first:
            await anyio.sleep(SEPARATE_SECONDS * 2)
        await anyio.sleep(SEPARATE_SECONDS / 2)
        async with separate.use("ann", Caller()) as again:
            assert again is first
        await first.stopped.wait()
        async with separate.use("ann", Caller()) as later:
            assert later is not first


@virtual_time
async def test_a_further_session_ends_the_session_that_was_idle_longest_and_no_used_session() -> None:
    async with sessions() as separate, AsyncExitStack() as stack:
        used = [await stack.enter_async_context(separate.use(f"p{at}", Caller())) for at in range(MAX_SEPARATE - 2)]
        idle = []
        for name in ("ann", "bob"):
            async with separate.use(name, Caller()) as server:
                idle.append(server)
        await stack.enter_async_context(separate.use("eve", Caller()))
        assert [server.stopped.is_set() for server in (*idle, *used)] == [True] + [False] * (MAX_SEPARATE - 1)
        await stack.enter_async_context(separate.use("bob", Caller()))
        with pytest.raises(ServerError, match="make the call again later"):
            await stack.enter_async_context(separate.use("zoe", Caller()))


@virtual_time
async def test_a_stopped_server_has_no_sessions_any_more() -> None:
    async with sessions() as separate:
        async with separate.use("ann", Caller()) as first:
            separate.stop()
            assert first.stopped.is_set()
        with pytest.raises(ServerGone):
            async with separate.use("ann", Caller()):
                pass
