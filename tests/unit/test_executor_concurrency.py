"""The calls of one round run concurrently, and a failure of one call does not affect the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import CallToolResult

from tests.inner import Failure, OnCallProgress, PolicyRules, ServerError, ServerGone, ToolCallFinished, ToolCallStarted
from tests.support.fakes import server, text_result, tool_named
from tests.support.tool_rounds import STRICT, Round, call, fails, runs

pytestmark = pytest.mark.anyio


async def test_results_are_in_the_order_of_the_calls() -> None:
    last_done = anyio.Event()

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        if tool == "last":
            last_done.set()
        else:
            await last_done.wait()
        return text_result(tool)

    calls = Round(server("s", "first", "last", call=answer))
    with anyio.fail_after(60):
        results = await calls.run(call("first", id_="1"), call("last", id_="2"))
    assert [(result.tool_call_id, result.content) for result in results] == [("1", "first"), ("2", "last")]
    assert [event.result.tool_call_id for event in calls.heard.of(ToolCallFinished)] == ["2", "1"]


@pytest.mark.parametrize(("calls", "max_parallel"), [(8, 8), (7, 3), (5, 1)])
async def test_max_parallel_calls_run_at_once_and_never_more(calls: int, max_parallel: int) -> None:
    inside, most = 0, 0
    left = calls
    full = anyio.Event()

    async def meet() -> None:
        nonlocal inside, most, left
        inside += 1
        most = max(most, inside)
        if inside == min(max_parallel, left):
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        inside, left = inside - 1, left - 1

    calls_round = Round(server("s", "meet", call=runs(meet)), max_parallel=max_parallel)
    with anyio.fail_after(60):
        results = await calls_round.run(*(call("meet", id_=str(at)) for at in range(calls)))
    assert [result.tool_call_id for result in results] == [str(at) for at in range(calls)]
    assert most == min(calls, max_parallel)


FAULTS: list[tuple[str, Exception, Failure, str]] = [
    ("gone", ServerGone("bad", "it was killed"), Failure.SERVER, "The server 'bad' is not available: it was killed"),
    ("refused", ServerError("bad", "no such tool"), Failure.SERVER, "The call failed: no such tool"),
    ("an unexpected exception", KeyError("secret"), Failure.SERVER, "KeyError"),
    ("an exception group", ExceptionGroup("secret", [ValueError("secret")]), Failure.SERVER, "ExceptionGroup"),
]


@pytest.mark.parametrize(("error", "failure", "words"), [c[1:] for c in FAULTS], ids=[c[0] for c in FAULTS])
async def test_a_call_that_fails_leaves_concurrent_calls_running(
    error: Exception, failure: Failure, words: str
) -> None:
    is_released = anyio.Event()
    calls = Round(server("good", "slow", call=runs(is_released.wait)), server("bad", "broken", call=fails(error)))

    async def release_second_call() -> None:
        await anyio.wait_all_tasks_blocked()
        is_released.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(release_second_call)
            slow, broken = await calls.run(call("slow", id_="1"), call("broken", id_="2"))
    assert slow.content == "done"
    assert (broken.success, broken.failure) == (False, failure)
    assert words in str(broken.content)
    assert "secret" not in str(broken.content)


async def test_every_call_has_a_started_event_and_a_finished_event() -> None:
    calls = Round(
        server("good", "now", tool_named("add", input_schema=STRICT)),
        server("bad", "broken", call=fails(ServerGone("bad", "it was killed"))),
        rules=PolicyRules(deny=("now",)),
    )
    names = ["now", "add", "broken", "nowhere"]
    await calls.run(*(call(name, id_=name) for name in names))
    assert sorted(event.call.id for event in calls.heard.of(ToolCallStarted)) == sorted(names)
    assert sorted(event.result.tool_call_id for event in calls.heard.of(ToolCallFinished)) == sorted(names)


async def test_two_identical_calls_have_two_results() -> None:
    results = await Round(server("s", "now")).run(call("now", id_="1"), call("now", id_="2"))
    assert [result.tool_call_id for result in results] == ["1", "2"]


async def test_cancelling_the_round_cancels_its_calls_at_their_servers() -> None:
    running: list[int] = []
    ended: list[int] = []

    async def hang() -> None:
        running.append(1)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    calls = Round(server("s", "hang", call=runs(hang)))
    async with anyio.create_task_group() as group:
        group.start_soon(calls.run, call("hang", id_="1"), call("hang", id_="2"))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert (running, ended) == ([1, 1], [1, 1])
