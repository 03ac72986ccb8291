"""What a call leaves beside its text: its value, and the sources that a function cites."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass

import pytest

from dial_client import Citation, Context, DialClient, MessageCompleted, ToolCallResult, Turn
from dial_client.testing import ScriptedProvider
from tests.support.function_calls import call, calls, run

pytestmark = pytest.mark.anyio


@dataclass
class Passage:
    text: str
    score: float


HANDBOOK = Citation("handbook.pdf", "Handbook", quote="Tea is free.", location="page 3")
WIKI = Citation("https://wiki.example/tea", url="https://wiki.example/tea")


def search(words: str, *, context: Context) -> list[Passage]:
    """Search the passages."""
    context.cite(HANDBOOK)
    context.cite(WIKI if words == "wiki" else HANDBOOK)
    return [Passage("Tea is free.", 0.9)]


async def test_the_return_value_of_a_function_is_on_its_result() -> None:
    turn = await run(calls("search", words="tea"), "Yes.", tools=[search])
    [record] = turn.tool_calls
    assert record.result.value == [Passage("Tea is free.", 0.9)]
    assert record.result.content == '[{"text":"Tea is free.","score":0.9}]'
    assert (await call(search, words="tea")).value == [Passage("Tea is free.", 0.9)]


async def test_a_value_that_cannot_be_stored_does_not_keep_the_turn_from_it() -> None:
    def open_file() -> object:
        return lambda: "no JSON, no pickle"

    turn = await run(calls("open_file"), "Yes.", tools=[open_file])
    assert callable(turn.tool_calls[0].result.value)
    assert pickle.loads(pickle.dumps(turn)) == turn
    assert Turn.from_dict(json.loads(json.dumps(turn.to_dict()))) == turn


async def test_the_sources_that_a_function_cites_are_those_of_the_answer() -> None:
    turn = await run(calls("search", words="tea"), calls("search", words="wiki"), "Tea is free.", tools=[search])
    assert turn.citations == turn.messages[-1].citations == (HANDBOOK, WIKI)
    assert [record.result.citations for record in turn.tool_calls] == [(HANDBOOK, HANDBOOK), (HANDBOOK, WIKI)]
    assert Turn.from_dict(json.loads(json.dumps(turn.to_dict()))) == turn


async def test_the_event_of_the_answer_has_the_sources() -> None:
    model = ScriptedProvider([calls("search", words="tea"), "Tea is free.", "You are welcome."])
    async with DialClient(model, tools=[search]) as dial:
        events = [event async for event in dial.stream("Is tea free?")]
        later = await dial.run("Thank you.")
    completed = [event.message for event in events if isinstance(event, MessageCompleted)]
    assert [message.citations for message in completed] == [(), (), (HANDBOOK,)]
    assert later.citations == ()


async def test_a_stored_result_has_its_citations() -> None:
    result = ToolCallResult("1", success=True, content="", citations=(HANDBOOK,))
    assert ToolCallResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


async def test_only_a_citation_can_be_cited() -> None:
    def wrong(context: Context) -> None:
        context.cite("handbook.pdf")  # type: ignore[arg-type]  # the wrong type is the test

    error = (await call(wrong)).exception
    assert str(error) == "cite takes a Citation(…), not str"
