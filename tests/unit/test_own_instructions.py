"""The instructions of the host itself, and how a program turns them off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dial_client import DialClient, Message, Turn
from dial_client.extend import CallNext, Middleware, TurnRequest
from dial_client.testing import ScriptedProvider

pytestmark = pytest.mark.anyio


def beep() -> str:
    """Beep."""
    return "beep"


async def instructions_of(turn: dict[str, Any], **options: Any) -> str:
    model = ScriptedProvider(["Hello."])
    async with DialClient(model, tools=[beep], **options) as dial:
        await dial.run([Message.user("Hi")], **turn)
    return model.requests[0].instruction_text


async def test_an_empty_system_prompt_means_no_instructions() -> None:
    assert (await instructions_of({})).startswith("Use tools where they help")
    assert await instructions_of({}, system="") == ""
    assert await instructions_of({"system": ""}) == ""
    assert await instructions_of({"system": ""}, system="Be brief.") == ""


async def test_a_guidance_of_the_program_is_sent_without_a_system_prompt_too() -> None:
    assert await instructions_of({}, system="", guidance="Beep once.") == "Beep once."


async def test_a_middleware_can_leave_all_instructions_out() -> None:
    class Bare(Middleware):
        async def around_turn(self, request: TurnRequest, call_next: CallNext[TurnRequest, Turn]) -> Turn:
            return await call_next(replace(request, system=""))

    assert await instructions_of({}, middleware=[Bare()]) == ""
