"""Errors in the program's own functions, approvers and middleware: the log, the record of the call, the model."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from dial_client import Approval, Context, DialClient, ToolCallResult, ToolError
from dial_client.extend import CallNext, Failure, Middleware, ToolCall
from dial_client.testing import ScriptedProvider
from tests.support.function_calls import calls, run

pytestmark = pytest.mark.anyio

SECRET = "postgresql://ada:s3cret@db/orders"


def look_up(order: str) -> str:
    """Look up an order."""
    orders: dict[str, str] = {}
    return orders[f"{order} {SECRET}"]


async def test_the_model_reads_no_internals_of_an_error_in_a_function() -> None:
    model = ScriptedProvider([calls("look_up", order="7"), "Sorry."])
    async with DialClient(model, tools=[look_up]) as dial:
        turn = await dial.run("Where is order 7?")
    [record] = turn.tool_calls
    assert record.result.content == model.requests[1].messages[-1].text == "The tool failed: KeyError."
    assert (record.result.failure, SECRET in str(turn.to_dict())) == (Failure.TOOL, False)


async def test_the_log_has_the_place_and_the_traceback_of_an_error_in_a_function(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "dial_client"):
        await run(calls("look_up", order="7"), "Sorry.", tools=[look_up])
    [line] = [record.getMessage() for record in caplog.records if "function_failed" in record.getMessage()]
    number = look_up.__code__.co_firstlineno + 3
    assert f"test_own_errors.py:{number}" in line
    assert "tool='look_up'" in line
    assert "error='KeyError'" in line
    assert "in look_up" in line.replace("\\n", "\n")


async def test_the_record_of_a_call_has_the_exception() -> None:
    turn = await run(calls("look_up", order="7"), "Sorry.", tools=[look_up])
    [record] = turn.tool_calls
    assert isinstance(record.exception, KeyError)
    assert record.exception.__traceback__ is not None
    copied = pickle.loads(pickle.dumps(turn))
    assert (copied, copied.tool_calls[0].exception) == (turn, None), "an exception may be no value that can be stored"


async def test_the_text_of_a_tool_error_is_for_the_model() -> None:
    def order(article: str) -> str:
        raise ToolError(f"there is no {article}: \x1b[31mtry tea")

    turn = await run(calls("order", article="coffee"), "Sorry.", tools=[order])
    [record] = turn.tool_calls
    assert record.result.content == "there is no coffee: try tea"
    assert isinstance(record.exception, ToolError)


async def test_the_option_on_tool_error_writes_the_text_for_the_model() -> None:
    seen: list[tuple[str, str]] = []

    def explain(error: Exception, context: Context) -> str | None:
        seen.append((context.tool, type(error).__name__))
        return f"{type(error).__name__}: ask the desk" if isinstance(error, KeyError) else None

    def leave() -> None:
        raise OSError(SECRET)

    replies = (calls("look_up", order="7"), calls("leave"), "Sorry.")
    turn = await run(*replies, tools=[look_up, leave], on_tool_error=explain)
    texts = [record.result.content for record in turn.tool_calls]
    assert texts == ["KeyError: ask the desk", "The tool failed: OSError."]
    assert seen == [("look_up", "KeyError"), ("leave", "OSError")]


@pytest.mark.parametrize("answer", [3, ValueError(SECRET)])
async def test_an_option_on_tool_error_that_fails_changes_nothing(answer: Any, caplog: Any) -> None:
    def explain(_error: Exception, _context: Context) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # the wrong type is the test

    turn = await run(calls("look_up", order="7"), "Sorry.", tools=[look_up], on_tool_error=explain)
    assert turn.tool_calls[0].result.content == "The tool failed: KeyError."
    assert any("on_tool_error_failed" in record.getMessage() for record in caplog.records)


def test_an_on_tool_error_that_is_no_function_is_a_type_error() -> None:
    wrong: Any = "explain"
    with pytest.raises(TypeError, match=r"on_tool_error takes a function, not str$"):
        DialClient(on_tool_error=wrong)


async def test_an_error_of_an_approver_is_logged_recorded_and_noted(caplog: Any) -> None:
    async def approve(*_: object) -> Approval:
        raise KeyError(SECRET)

    turn = await run(calls("look_up", order="7"), "Sorry.", tools=[look_up], approve=approve)
    [record] = turn.tool_calls
    assert record.denied
    assert isinstance(record.exception, KeyError)
    assert turn.notes == ("the call of 'look_up' was denied: the approver raised KeyError",)
    assert SECRET not in str(turn.to_dict())
    [line] = [record.getMessage() for record in caplog.records if "approver_failed" in record.getMessage()]
    assert f"test_own_errors.py:{approve.__code__.co_firstlineno + 1}" in line


async def test_an_error_of_a_middleware_is_logged_and_recorded(caplog: Any) -> None:
    class Broken(Middleware):
        async def around_tool_call(
            self,
            call: ToolCall,  # noqa: ARG002 - a method of `Middleware`
            call_next: CallNext[ToolCall, ToolCallResult],  # noqa: ARG002 - a method of `Middleware`
        ) -> ToolCallResult:
            raise KeyError(SECRET)

    turn = await run(calls("look_up", order="7"), "Sorry.", tools=[look_up], middleware=[Broken()])
    [record] = turn.tool_calls
    assert record.exception is not None
    assert isinstance(record.exception.__cause__, KeyError)
    [line] = [record.getMessage() for record in caplog.records if "middleware_failed" in record.getMessage()]
    assert "test_own_errors.py:" in line
    assert "in around_tool_call" in line
