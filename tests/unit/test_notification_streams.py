"""A stream of notifications that is lost is opened again after a pause, until its task is cancelled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from dial_client import ServerError
from tests.inner import MAX_CUTS, Notifications
from tests.support.fakes import virtual_time

pytestmark = pytest.mark.anyio

ERRORS = (OSError("reset"), KeyError("odd"), ExceptionGroup("streams", [RuntimeError("closed")]))


@dataclass
class Stream:
    """A stream that announces one change, and breaks."""

    error: Exception
    honored: object = None

    async def __aiter__(self) -> AsyncIterator[str]:
        yield "changed"
        raise self.error


@dataclass
class LosingClient:
    """The SDK's client of a server that breaks each stream, or refuses even the first."""

    error: Exception
    refuses: bool = False
    opened: int = field(default=0, init=False)

    @asynccontextmanager
    async def listen(self, **_: Any) -> AsyncGenerator[Stream, None]:
        self.opened += 1
        if self.refuses:
            raise self.error
        yield Stream(self.error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_lost_stream_is_not_opened_again_at_once_and_cancellation_ends_the_wait(error: Exception) -> None:
    client: Any = LosingClient(error)
    events: list[object] = []
    with anyio.move_on_after(0.3) as scope:
        await Notifications("demo").listen(client, {}, lambda _: True, events.append)
    assert scope.cancelled_caught
    assert (client.opened, events) == (1, ["changed"])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_refused_first_stream_ends_the_listening(error: Exception) -> None:
    client: Any = LosingClient(error, refuses=True)
    with pytest.raises(type(error)):
        await Notifications("demo").listen(client, {}, lambda _: True, list[object]().append)
    assert client.opened == 1


@dataclass
class CuttingClient:
    """The SDK's client of a server behind a host that ends each stream after some seconds."""

    seconds: float
    opened: int = field(default=0, init=False)

    @asynccontextmanager
    async def listen(self, **_: Any) -> AsyncGenerator[CuttingClient, None]:
        self.opened += 1
        yield self

    honored: object = None

    async def __aiter__(self) -> AsyncIterator[str]:
        yield "changed"
        await anyio.sleep(self.seconds)


@virtual_time
async def test_a_host_that_cuts_every_stream_is_left_alone_after_a_few_attempts() -> None:
    client: Any = CuttingClient(seconds=5)
    with anyio.fail_after(3600), pytest.raises(ServerError, match="cuts its stream of notifications"):
        await Notifications("demo").listen(client, {}, lambda _: True, list[object]().append)

    assert client.opened == MAX_CUTS


@virtual_time
async def test_a_stream_that_is_cut_after_minutes_is_opened_again_each_time() -> None:
    client: Any = CuttingClient(seconds=300)
    with anyio.move_on_after(24 * 3600) as scope:
        await Notifications("demo").listen(client, {}, lambda _: True, list[object]().append)

    assert scope.cancelled_caught
    assert client.opened == 24 * 3600 // 301 + 1
