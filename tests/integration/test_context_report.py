"""What fills the context window: the parts of a conversation, counted by the endpoint or estimated."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import ConversationManager, DialClient, Limits, MemoryStore, Message
from dial_client.testing import ScriptedProvider
from tests.inner import format_context, measure_tool

pytestmark = pytest.mark.anyio
WINDOW = 4_000
USAGE = {"input_tokens": 700, "output_tokens": 100}


def lookup(word: str) -> str:
    """Find the meaning of a word."""
    return f"{word}: " + "a long meaning, " * 100


def open_client(replies: list[Any], **options: Any) -> DialClient:
    dial = DialClient(ScriptedProvider(replies), tools=[lookup], **options)
    dial.model.set_context_window(WINDOW)
    return dial


async def test_a_new_conversation_has_its_instructions_and_tools() -> None:
    async with open_client([], system="Be brief.") as dial:
        report = dial.measure_context(())
        planned = dial.measure_context((), system="")
    assert {part.name: part.count for part in report.parts} == {"your instructions": 1, "tools of functions": 1}
    assert (report.window, report.is_counted, report.left_out) == (WINDOW, False, 0)
    assert report.fill == report.tokens / WINDOW
    assert [part.name for part in planned.parts] == ["tools of functions"]


async def test_the_sum_is_what_the_endpoint_counted_for_the_last_request_of_the_conversation() -> None:
    replies = [{"tool_calls": [{"name": "lookup", "arguments": {"word": "rain"}}]}, {"text": "Rain.", "usage": USAGE}]
    async with open_client([*replies, "Again."]) as dial:
        manager = ConversationManager(dial, MemoryStore())
        known = await manager.create()
        estimated = await manager.measure_context(known.id)
        await manager.chat(known.id, "What is rain?")
        counted = await manager.measure_context(known.id)
        await manager.undo(known.id)
        undone = await manager.measure_context(known.id)
    assert (estimated.is_counted, counted.is_counted, undone.is_counted) == (False, True, False)
    assert (counted.tokens, counted.fill) == (800, 0.2)
    parts = {part.name: (part.count, part.tokens) for part in counted.parts}
    assert parts["messages"][0] == 3
    assert parts["results of calls"][0] == 1
    assert parts["results of calls"][1] > 400, "the long result has most of the tokens"
    assert undone.tokens == estimated.tokens


async def test_messages_that_do_not_fit_are_not_counted_but_named() -> None:
    async with open_client([]) as dial:
        exchange = [Message.user("word " * 200), Message.assistant("answer " * 100)]
        report = dial.measure_context(exchange * 20)
    assert report.left_out > 0
    assert report.tokens < WINDOW


async def test_in_code_mode_the_tools_are_the_text_that_is_sent() -> None:
    model = ScriptedProvider(["Done."])
    async with DialClient(model, tools=[lookup], tool_format="code") as dial:
        report = dial.measure_context(())
        await dial.run("go on")
    (sent,) = model.requests[0].tools
    (part,) = [part for part in report.parts if part.bytes]
    assert (part.name, part.count, part.bytes) == ("tools of the program", 1, measure_tool(sent))
    assert report.searched_tools == 0


@pytest.mark.parametrize("tool_format", [None, "code"])
async def test_tools_that_the_model_searches_for_are_counted_apart(tool_format: str | None) -> None:
    async with open_client([], limits=Limits(max_tool_bytes=1), tool_format=tool_format) as dial:
        report = dial.measure_context(())
        size = sum(measure_tool(tool) for tool in dial.tools)
    assert (report.searched_tools, report.searched_bytes) == (1, size)
    assert "tools of functions" not in {part.name for part in report.parts}
    assert f"Not in it: 1 tool of {size} bytes, which the model searches for." in format_context(report)
