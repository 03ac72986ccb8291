"""A scripted model whose replies are those of a function of the request, for turns that run at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import ConfigError, DialClient, ProviderError, Turn
from dial_client.extend import ModelRequest
from dial_client.testing import ScriptedProvider
from tests.support.function_calls import calls

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def reply(request: ModelRequest) -> Any:
    last = request.messages[-1]
    return calls("double", number=int(last.text)) if last.role == "user" else f"It is {last.text}."


async def test_concurrent_turns_get_the_replies_to_their_own_requests() -> None:
    model = ScriptedProvider(reply)
    async with DialClient(model, tools=[double]) as dial:
        turns = await dial.map([str(number) for number in range(20)], concurrency=20)
    texts = [turn.text for turn in turns if isinstance(turn, Turn)]
    assert texts == [f"It is {2 * number}." for number in range(20)]
    assert len(model.requests) == 40


async def test_a_reply_of_a_function_has_all_forms_and_is_checked() -> None:
    async with DialClient(ScriptedProvider(lambda _: {"error": {"message": "busy", "status": 503}})) as dial:
        with pytest.raises(ProviderError, match="busy"):
            await dial.run("Hi")
    async with DialClient(ScriptedProvider(lambda _: {"tool_call": []})) as dial:
        with pytest.raises(ConfigError, match=r"reply: tool_call: unknown key|reply.tool_call: unknown key"):
            await dial.run("Hi")


def test_a_class_or_an_asynchronous_function_is_a_type_error() -> None:
    async def later(_: ModelRequest) -> str:
        return "Hi"

    wrong: Any
    for wrong in (later, Turn, 3):
        with pytest.raises(TypeError, match=r"replies takes a list, or a function of the ModelRequest, not "):
            ScriptedProvider(wrong)
