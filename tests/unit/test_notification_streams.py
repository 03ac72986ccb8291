"""A stream of notifications that is lost is opened again after a pause, until its task is cancelled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.inner import Notifications

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
