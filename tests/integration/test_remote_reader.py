"""A reader of a turn of another process notices what it has missed."""

from __future__ import annotations

import pytest

from dial_client import SQLStore
from tests.inner import Peers, RemoteReader

pytestmark = pytest.mark.anyio


def open_reader(after: int = 0) -> RemoteReader:
    """Return a reader of a turn; it needs no connection to receive messages."""
    return RemoteReader(Peers(SQLStore("postgresql://127.0.0.1/nowhere")), "conversation", "turn", after)


async def test_events_arrive_in_the_order_of_their_messages() -> None:
    reader = open_reader(3)
    reader.receive([], 3)
    reader.receive([(4, "four")], 3)
    reader.receive([(5, "five"), (None, "end")], 4)
    assert await reader.read(1.0) == [(4, "four"), (5, "five"), (None, "end")]
    assert not reader.is_restarted


async def test_events_after_a_lost_message_are_not_read_but_asked_for_again() -> None:
    reader = open_reader()
    reader.receive([(1, "one")], 0)
    reader.receive([(3, "three")], 2)
    assert (await reader.read(1.0), reader.is_restarted) == ([(1, "one")], True)


async def test_a_process_of_an_older_version_does_not_say_what_it_has_sent_before() -> None:
    reader = open_reader()
    reader.receive([(2, "two")], None)
    assert (await reader.read(1.0), reader.is_restarted) == ([(2, "two")], False)


@pytest.mark.parametrize("batch", [[("one", "text")], [(1, 2)], [1], None])
async def test_messages_of_another_form_are_refused(batch: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        open_reader().receive(batch, 0)
