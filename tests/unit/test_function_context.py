"""Functions as tools: progress, questions to the user, cancellation and timeouts."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from dial_client import Callbacks, Context, DialClient, FunctionTool, Limits, ToolCallProgress
from dial_client.extend import CallCancelled, Elicitation, ElicitationAnswer, Failure
from dial_client.testing import ScriptedProvider
from tests.support.fakes import virtual_time
from tests.support.function_calls import call, calls, run

pytestmark = pytest.mark.anyio


# --- while a function runs ------------------------------------------------------------------------


async def report(context: Context, steps: int) -> str:
    for step in range(steps):
        await context.report_progress(step, steps, "on the way")
    return f"{context.tool} {bool(context.turn_id)} {context.is_cancelled}"


def report_from_thread(steps: int, context: Context | None = None) -> str:
    assert context is not None
    assert threading.current_thread() is not threading.main_thread()
    for step in range(steps):
        context.report_progress_sync(step, steps, "on the way")
    return f"{context.tool} {bool(context.turn_id)} {context.is_cancelled}"


@pytest.mark.parametrize("function", [report, report_from_thread])
async def test_a_function_reports_progress(function: Callable[..., Any]) -> None:
    name = function.__name__
    async with DialClient(ScriptedProvider([calls(name, steps=2), "Done."]), tools=[function]) as dial:
        events = [event async for event in dial.stream("go on")]
        assert list(dial.tools[0].input_schema["properties"]) == ["steps"], "the model does not see the context"
    progress = [event for event in events if isinstance(event, ToolCallProgress)]
    assert progress == [ToolCallProgress("call_1", step, 2, "on the way") for step in range(2)]
    assert events[-1].turn.tool_calls[0].result.content == f"{name} True False"  # type: ignore[union-attr]


class Contact(BaseModel):
    mail: str
    age: int = 7


async def ask(context: Context) -> str:
    answer = await context.elicit("Who are you?", Contact)
    return f"{answer.action} {dict(answer.content)}"


def ask_from_thread(context: Context) -> str:
    answer = context.elicit_sync("Who are you?", {"type": "object", "properties": {"mail": {"type": "string"}}})
    return f"{answer.action} {dict(answer.content)}"


async def test_a_function_asks_the_user() -> None:
    questions: list[Elicitation] = []

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        questions.append(question)
        return ElicitationAnswer("accept", {"mail": "a@b"})

    callbacks = Callbacks(elicit=elicit)
    turn = await run(calls("ask"), calls("ask_from_thread"), "Done.", tools=[ask, ask_from_thread], callbacks=callbacks)
    contents = [record.result.content for record in turn.tool_calls]
    assert contents == ["accept {'age': 7, 'mail': 'a@b'}", "accept {'mail': 'a@b'}"]
    assert [(question.server, question.tools) for question in questions] == [
        ("functions", ("ask",)),
        ("functions", ("ask_from_thread",)),
    ]


@virtual_time
async def test_waiting_for_the_user_does_not_count_towards_timeouts() -> None:
    async def elicit(question: Elicitation) -> ElicitationAnswer:
        await anyio.sleep(1000)
        return ElicitationAnswer("decline")

    limits = Limits(timeout=10, tool_timeout=1)
    turn = await run(calls("ask"), "Done.", tools=[ask], callbacks=Callbacks(elicit=elicit), limits=limits)
    assert (turn.tool_calls[0].result.content, turn.text) == ("decline {}", "Done.")


async def test_eliciting_without_a_callback_is_an_error() -> None:
    result = await call(ask)
    assert str(result.exception) == "the user cannot be asked: the client has no `Callbacks.elicit`"


async def test_an_answer_that_does_not_fit_the_form_is_an_error() -> None:
    async def elicit(question: Elicitation) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {"age": "old"})

    turn = await run(calls("ask"), "Done.", tools=[ask], callbacks=Callbacks(elicit=elicit))
    assert "the answer does not fit the form: " in str(turn.tool_calls[0].exception)


async def _forever(context: Context) -> None:
    await anyio.sleep_forever()


@virtual_time
async def test_a_coroutine_that_times_out_is_cancelled() -> None:
    tool = FunctionTool(_forever, name="forever")
    turn = await run(calls("forever"), "Done.", tools=[tool], limits=Limits(tool_timeout=5))
    assert turn.tool_calls[0].result.failure is Failure.TIMEOUT


async def test_a_thread_that_times_out_is_abandoned_and_can_detect_the_cancellation() -> None:
    begun, release, noticed = threading.Event(), threading.Event(), threading.Event()

    def block(context: Context) -> None:
        begun.set()
        release.wait(60)
        try:
            context.raise_if_cancelled()
        except CallCancelled:
            noticed.set()

    try:
        for timeout in (0.05, 0.5, 5, 50):  # on a busy machine the timeout may elapse before the thread starts
            turn = await run(calls("block"), "Done.", tools=[block], limits=Limits(tool_timeout=timeout))
            assert (turn.tool_calls[0].result.failure, turn.text) == (Failure.TIMEOUT, "Done.")
            if begun.is_set():
                break
    finally:
        release.set()
    assert await anyio.to_thread.run_sync(noticed.wait, 60)


async def test_functions_of_one_round_run_concurrently() -> None:
    barrier = threading.Barrier(2)
    both = anyio.Event()
    waiting: list[int] = []

    def meet() -> str:
        barrier.wait(60)
        return "met"

    async def meet_too() -> str:
        waiting.append(1)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return "met"

    round_: dict[str, Any] = {
        "tool_calls": [{"name": name, "arguments": {}} for name in ("meet", "meet", "meet_too", "meet_too")]
    }
    turn = await run(round_, "Done.", tools=[meet, meet_too])
    assert [record.result.content for record in turn.tool_calls] == ["met"] * 4


async def test_a_function_may_return_an_awaitable() -> None:
    async def inner() -> str:
        return "awaited"

    def outer() -> Awaitable[str]:
        return inner()

    assert (await call(outer)).content == "awaited"
