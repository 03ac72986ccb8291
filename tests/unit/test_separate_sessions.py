"""Sessions of a server that serve one party each: how many there are, and when they end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from tests.inner import (
    MAX_SEPARATE,
    SEPARATE_SECONDS,
    BackgroundTasks,
    Callers,
    InputRequired,
    InputRound,
    LaterCallers,
    Party,
    SeparateSessions,
    ServerError,
    ServerGone,
)
from tests.support.fakes import virtual_time

pytestmark = pytest.mark.anyio


class Caller:
    """A call of a client."""

    is_resumable = False

    def __init__(self, *features: str) -> None:
        self.features = frozenset(features)

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


class Sessions(SeparateSessions[Server]):
    """Sessions of clients, by their names."""

    build: Callable[[Callers], Server]

    def of(self, client: str, *features: str) -> AbstractAsyncContextManager[Server]:
        return self.use(Party(client=client), Caller(*features), self.build)


@asynccontextmanager
async def sessions(build: Callable[[Callers], Server] = lambda _: Server()) -> AsyncGenerator[Sessions]:
    separate = Sessions("it", LaterCallers())
    separate.build = build
    separate.tasks = await BackgroundTasks.open()
    tasks = separate.tasks
    yield separate
    separate.stop()
    await separate.wait_ended()
    await tasks.aclose()


@virtual_time
async def test_a_session_ends_when_its_party_makes_no_call_for_a_while() -> None:
    async with sessions() as separate:
        async with separate.of("ann") as first:
            await anyio.sleep(SEPARATE_SECONDS * 2)
        await anyio.sleep(SEPARATE_SECONDS / 2)
        async with separate.of("ann") as again:
            assert again is first
        await first.stopped.wait()
        async with separate.of("ann") as later:
            assert later is not first


@virtual_time
async def test_a_further_session_ends_the_session_that_was_idle_longest_and_no_used_session() -> None:
    async with sessions() as separate, AsyncExitStack() as stack:
        used = [await stack.enter_async_context(separate.of(f"p{at}")) for at in range(MAX_SEPARATE - 2)]
        idle = []
        for name in ("ann", "bob"):
            async with separate.of(name) as server:
                idle.append(server)
        await stack.enter_async_context(separate.of("eve"))
        assert [server.stopped.is_set() for server in (*idle, *used)] == [True] + [False] * (MAX_SEPARATE - 1)
        await stack.enter_async_context(separate.of("bob"))
        with pytest.raises(ServerError, match="make the call again later"):
            await stack.enter_async_context(separate.of("zoe"))


@virtual_time
async def test_a_stopped_server_has_no_sessions_any_more() -> None:
    async with sessions() as separate:
        async with separate.of("ann") as first:
            separate.stop()
            assert first.stopped.is_set()
        with pytest.raises(ServerGone):
            async with separate.of("ann"):
                pass


async def test_a_session_knows_the_features_that_its_party_had_at_the_latest_call() -> None:
    """A client program may come back with other features, before its server is restarted."""
    known: list[Callers] = []

    def build(callers: Callers) -> Server:
        known.append(callers)
        return Server()

    async with sessions(build) as separate:
        for features in ((), ("roots", "elicitation"), ("elicitation",)):
            async with separate.of("ann", *features):
                assert known[0].features == frozenset(features)
        assert len(known) == 1
        assert known[0].features == {"elicitation"}


@virtual_time
async def test_a_session_that_waits_for_an_answer_is_the_last_one_to_make_room() -> None:
    """The server may keep the state of a question in its process; so the session stays as long as an answer counts."""
    async with sessions() as separate:
        servers = []
        for at in range(MAX_SEPARATE):
            with suppress(InputRequired):
                async with separate.of(f"p{at}") as server:
                    servers.append(server)
                    if at != 1:
                        raise InputRequired(InputRound("it", None, {}), {})
        async with separate.of("eve"):
            assert [at for at, server in enumerate(servers) if server.stopped.is_set()] == [1]
        await anyio.sleep(SEPARATE_SECONDS - 1)
        async with separate.of("p0") as again:
            assert again is servers[0]
        with suppress(InputRequired):
            async with separate.of("eve"):
                raise InputRequired(InputRound("it", None, {}), {})
        async with separate.of("zoe"):
            assert servers[0].stopped.is_set(), "its question was answered"
            async with separate.of("max"):
                assert servers[2].stopped.is_set(), "nobody else can make room"


@virtual_time
async def test_the_end_of_a_client_or_a_person_closes_all_their_sessions_and_no_other() -> None:
    parties = [Party("ann"), Party("ann", "c1"), Party("bob", "c2"), Party("bob")]
    async with sessions() as separate:
        servers = []
        for party in parties:
            async with separate.use(party, None, lambda _: Server()) as server:
                servers.append(server)
        separate.end(client="c2")
        separate.end(owner="ann")
        assert [server.stopped.is_set() for server in servers] == [True, True, True, False]
