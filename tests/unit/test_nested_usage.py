"""Turns that a function of a turn runs: their tokens count for the outer turn, whichever client runs them."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import DialClient, Limits, Usage
from dial_client.testing import ScriptedProvider
from tests.support.function_calls import calls

pytestmark = pytest.mark.anyio


def spends(reply: Any, tokens: int) -> dict[str, Any]:
    content = {"text": reply} if isinstance(reply, str) else reply
    return {**content, "usage": {"input_tokens": tokens, "output_tokens": 1}}


async def test_the_tokens_of_a_turn_in_a_function_count_for_the_outer_turn() -> None:
    expert = DialClient(ScriptedProvider([spends("Noon.", 100)]))

    async def ask(question: str) -> str:
        """Ask an expert."""
        return (await expert.run(question)).text

    model = ScriptedProvider([spends(calls("ask", question="When?"), 10), spends("At noon.", 10)])
    async with expert, DialClient(model, tools=[ask]) as dial:
        turn = await dial.run("When?")
    assert turn.usage == Usage(120, 3)
    assert turn.request_usages == (Usage(10, 1), Usage(100, 1), Usage(10, 1))


async def test_the_tokens_of_a_turn_in_a_synchronous_function_count_at_every_depth() -> None:
    model = ScriptedProvider(
        [
            spends(calls("plan"), 1),
            spends(calls("look"), 10),
            spends("Seen.", 100),
            spends("Planned.", 1_000),
            spends("Done.", 10_000),
        ]
    )
    dial = DialClient(model)

    @dial.tool
    def plan() -> str:
        return dial.run_sync("Plan.").text

    @dial.tool
    def look() -> str:
        return DialClient(model).run_sync("Look.").text

    async with dial:
        turn = await dial.run("Go on.")
        later = ScriptedProvider([spends("Yes.", 7)])
        assert (await dial.run("Done?", model=later)).usage == Usage(7, 1)
    assert turn.text == "Done."
    assert turn.usage == Usage(11_111, 5)


async def test_the_tokens_of_inner_turns_are_within_the_limit_of_the_outer_turn() -> None:
    expert = ScriptedProvider([spends("Noon.", 500)], after="repeat")

    async def ask() -> str:
        return (await dial.run("When?", model=expert, tools=[])).text

    model = ScriptedProvider([spends(calls("ask"), 10), spends("At noon.", 10)])
    async with DialClient(model, tools=[ask], limits=Limits(max_tokens_total=400)) as dial:
        turn = await dial.run("When?")
    assert (turn.stop_reason.value, turn.text) == ("token_budget", "At noon.")
