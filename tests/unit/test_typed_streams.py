"""Streams and handles of turns have the type of their output. mypy checks these tests, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from dial_client import ConversationManager, DialClient, Event, Finished, MemoryStore, Turn, TurnHandle
from dial_client.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


@dataclass
class Weather:
    place: str
    degrees: float


def client() -> DialClient:
    return DialClient(ScriptedProvider(['{"place": "Oslo", "degrees": 2.5}'], after="repeat"))


async def test_the_last_event_of_a_stream_has_the_type_of_the_output() -> None:
    async with client() as dial:
        async for event in dial.stream("How warm?", output_type=Weather):
            if isinstance(event, Finished):
                assert_type(event.turn, Turn[Weather])
                assert event.turn.output.degrees == 2.5
        async for event in dial.conversation().stream("How warm?", output_type=Weather):
            match event:
                case Finished(turn):
                    assert_type(turn, Turn[Weather])
                    assert turn.output.place == "Oslo"


async def test_a_handle_has_the_type_of_the_output() -> None:
    async with client() as dial:
        handle = dial.start("How warm?", output_type=Weather, stream=False)
        assert_type(handle, TurnHandle[Weather])
        assert (await handle.result()).output.place == "Oslo"
        manager = ConversationManager(dial, MemoryStore())
        conversation = await manager.create()
        started = await manager.start(conversation.id, "How warm?", output_type=Weather)
        assert_type(await started.result(), Turn[Weather])
        async for event in manager.stream_chat(conversation.id, "How warm?", output_type=Weather):
            assert_type(event, Event[Weather])


async def test_a_turn_without_an_output_type_has_an_output_of_no_type() -> None:
    async with client() as dial:
        plain = dial.start("How warm?")
        assert_type(plain, TurnHandle[object])
        async for event in plain.events():
            assert_type(event, Event[object])
        schema: Any = {"type": "object"}
        assert_type(dial.start("How warm?", output_type=schema), TurnHandle[Any])
        observers: list[TurnHandle] = [plain]
        assert observers[0].has_ended
