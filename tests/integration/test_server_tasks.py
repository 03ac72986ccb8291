"""Tasks of servers (SEP-2663): a call that a server answers with a task ends with the result of the task."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, Limits, ToolCallResult
from dial_client.extend import ElicitationAnswer, TurnObserver
from dial_client.testing import ScriptedProvider
from tests.inner import Callbacks, ModelRequest, TurnHandle
from tests.support.fakes import virtual_time
from tests.support.program import LONG, python_server
from tests.support.servers import tasks
from tests.support.servers.launch import HERE

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(store: tasks.TaskStore, **options: Any) -> AsyncIterator[DialClient]:
    async with DialClient(servers={"jobs": tasks.build_server(store)}, **options) as dial:
        yield dial


async def called(dial: DialClient, tool: str) -> ToolCallResult:
    with anyio.fail_after(LONG):
        return await dial.call(tool, {})


async def test_a_task_is_polled_until_its_result_is_there() -> None:
    async with opened(store := tasks.TaskStore()) as dial:
        result = await called(dial, "report")
    assert (result.content, result.value) == ("report done in 3 polls", {"polls": 3})
    assert [task["is_cancelled"] for task in store.tasks.values()] == [False]


async def test_the_question_of_a_task_is_asked_once_and_its_answer_sent() -> None:
    asked = []

    async def elicit(question: Any) -> ElicitationAnswer:
        asked.append((question.server, question.message, question.tools))
        return ElicitationAnswer("accept", {"format": "PDF"})

    async with opened(tasks.TaskStore(), callbacks=Callbacks(elicit=elicit)) as dial:
        result = await called(dial, "asks")
    assert json.loads(str(result.content)) == {"format": {"action": "accept", "content": {"format": "PDF"}}}
    assert asked == [("jobs", "Which format?", ("asks",))]


async def test_a_task_whose_question_nobody_can_answer_fails_and_is_cancelled() -> None:
    async with opened(store := tasks.TaskStore()) as dial:
        result = await called(dial, "asks")
    assert not result.success
    assert store.tasks["task-1"]["is_cancelled"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [("breaks", "the disk is full"), ("complains", "complains done"), ("stops", "The operator has stopped it.")],
)
async def test_the_end_of_a_task_that_failed_is_in_the_words_of_the_server(tool: str, words: str) -> None:
    async with opened(tasks.TaskStore()) as dial:
        result = await called(dial, tool)
    assert not result.success
    assert words in str(result.content)


async def test_a_call_whose_caller_is_cancelled_cancels_the_task_at_the_server() -> None:
    async with opened(store := tasks.TaskStore()) as dial, anyio.create_task_group() as group:
        group.start_soon(dial.call, "goes_on", {})
        with anyio.fail_after(LONG):
            await store.watched.wait()
            group.cancel_scope.cancel()
    assert store.tasks["task-1"]["is_cancelled"]


@virtual_time
async def test_a_task_that_takes_longer_than_a_tool_may_take_is_cancelled() -> None:
    limits = Limits(tool_timeout=0.2, tool_timeout_max=0.3)
    async with opened(store := tasks.TaskStore(), limits=limits) as dial:
        result = await called(dial, "goes_on")
    assert "no result within" in str(result.content)
    assert store.tasks["task-1"]["is_cancelled"]


async def test_a_task_is_polled_on_after_its_server_has_died_and_the_call_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    entry = python_server(HERE / "tasks.py", str(file))
    async with DialClient(servers={"jobs": entry}) as dial:
        await dial.ready()
        result = await called(dial, "report")
    assert result.content == "report done in 3 polls"
    assert list(json.loads(file.read_text())) == ["task-1"]


def calling_in_the_background(tool: str, then: str) -> ScriptedProvider:
    """Return a model that calls a tool, and then a tool of the host about this call as long as it runs."""

    def reply(request: ModelRequest) -> Any:
        message = request.messages[-1].text
        if len(request.messages) == 1:
            return {"tool_calls": [{"name": tool, "arguments": {}}]}
        if "still running" in message:
            call_id = message.removeprefix("[Background call ").partition(":")[0]
            return {"tool_calls": [{"name": then, "arguments": {"id": call_id}}]}
        return "Done."

    return ScriptedProvider(reply)


AT_ONCE = Limits(background_after=0)


async def test_a_task_of_a_call_in_the_background_is_polled_until_its_result_is_there() -> None:
    model = calling_in_the_background("report", "wait_for_call")
    async with opened(store := tasks.TaskStore(), model=model, limits=AT_ONCE) as dial:
        with anyio.fail_after(LONG):
            turn = await dial.run("Report.")
    assert str(turn.tool_calls[-1].result.content).endswith("report done in 3 polls")
    assert list(store.tasks) == ["task-1"], "the call is made once"


async def test_a_task_is_cancelled_at_its_server_when_the_model_stops_the_call() -> None:
    store = tasks.TaskStore()

    class Watch(TurnObserver):
        async def on_message(self, turn: TurnHandle) -> None:
            if turn.background:
                await store.watched.wait()

    model = calling_in_the_background("goes_on", "stop_call")
    async with opened(store, model=model, limits=AT_ONCE) as dial:
        with anyio.fail_after(LONG):
            await dial.start("Go on.", stream_events=False, observers=[Watch()]).result()
    assert store.tasks["task-1"]["is_cancelled"]
