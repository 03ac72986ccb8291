"""Timeouts and progress of tool calls; the time that a person takes to answer does not count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import CallToolResult

from tests.inner import (
    Approval,
    ApprovalContext,
    Connection,
    Failure,
    OnCallProgress,
    PolicyRules,
    ServerSettings,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallRequest,
    ToolSpec,
    Transport,
)
from tests.support.fakes import Behaviour, server, text_result, virtual_time
from tests.support.tool_rounds import Round, call, runs

pytestmark = pytest.mark.anyio


# --- progress -------------------------------------------------------------------------------------


def reports(*steps: tuple[float, float | None, str | None], pause: float = 0) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        for step in steps:
            await anyio.sleep(pause)
            await on_progress(*step)
        return text_result("done")

    return answer


async def test_progress_is_reported_between_beginning_and_end() -> None:
    calls = Round(server("s", "work", call=reports((1, 2, "half"), (2, 2, None))))
    await calls.run(call("work"))
    assert calls.heard[1:-1] == [ToolCallProgress("1", 1, 2, "half"), ToolCallProgress("1", 2, 2, None)]


async def test_progress_values_that_are_not_finite_are_not_reported() -> None:
    calls = Round(server("s", "work", call=reports((math.nan, math.inf, "half"), (1, math.nan, None))))
    await calls.run(call("work"))
    progress = calls.heard.of(ToolCallProgress)
    assert all(math.isfinite(event.progress) for event in progress)
    assert {event.total for event in progress} == {None}
    assert "half" in [event.message for event in progress]


async def test_progress_after_the_end_of_a_call_is_not_reported() -> None:
    kept: list[OnCallProgress] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        kept.append(on_progress)
        return text_result("done")

    calls = Round(server("s", "work", call=answer))
    await calls.run(call("work"))
    await kept[0](1, 2, "late")
    assert calls.heard.of(ToolCallProgress) == []


# --- time -----------------------------------------------------------------------------------------


def sleeps(seconds: float) -> Behaviour:
    return runs(lambda: anyio.sleep(seconds))


def slow_server(tool_timeout: float | None, seconds: float) -> Connection:
    settings = ServerSettings("s", Transport.STDIO, "x", tool_timeout=tool_timeout)
    return server("s", "work", settings=settings, call=sleeps(seconds))


TIMES: list[tuple[str, Connection, bool]] = [
    ("in time", server("s", "work", call=sleeps(9)), True),
    ("too late", server("s", "work", call=sleeps(11)), False),
    ("in time for this server", slow_server(20, 19), True),
    ("too late for this server", slow_server(5, 6), False),
    ("a server without a limit of its own", slow_server(None, 11), False),
]


@virtual_time
@pytest.mark.parametrize(("slow", "in_time"), [c[1:] for c in TIMES], ids=[c[0] for c in TIMES])
async def test_the_timeout_of_a_call_is_that_of_its_server_or_the_default(slow: Connection, in_time: bool) -> None:
    [result] = await Round(slow, tool_timeout=10).run(call("work"))
    assert result.success == in_time
    assert result.failure is (None if in_time else Failure.TIMEOUT)


@virtual_time
async def test_a_call_that_times_out_is_cancelled_at_its_server_and_concurrent_calls_continue() -> None:
    ended: list[float] = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())

    began = anyio.current_time()
    calls = Round(server("s", "hang", call=runs(hang)), server("t", "work", call=sleeps(9)), tool_timeout=10)
    late, good = await calls.run(call("hang", id_="1"), call("work", id_="2"))
    assert (late.failure, late.content) == (Failure.TIMEOUT, "The tool gave no result within 10 seconds.")
    assert good.success
    assert ended == [pytest.approx(began + 10)]


@virtual_time
async def test_progress_restarts_the_timeout_of_a_call() -> None:
    calls = Round(server("s", "work", call=reports(*[(1, None, None)] * 20, pause=9)), tool_timeout=10)
    [result] = await calls.run(call("work"))
    assert result.success


@virtual_time
async def test_a_call_with_endless_progress_ends_at_the_maximum_timeout() -> None:
    began = anyio.current_time()
    endless = reports(*[(1, None, None)] * 1000, pause=9)
    [result] = await Round(server("s", "work", call=endless), tool_timeout=10, tool_timeout_max=100).run(call("work"))
    assert result.failure is Failure.TIMEOUT
    assert anyio.current_time() - began == pytest.approx(100)


@virtual_time
async def test_progress_of_one_call_does_not_extend_the_timeout_of_another_call() -> None:
    busy = server("s", "busy", call=reports(*[(1, None, None)] * 10, pause=5))
    lazy = server("t", "lazy", call=sleeps(11))
    first, second = await Round(busy, lazy, tool_timeout=10).run(call("busy", id_="1"), call("lazy", id_="2"))
    assert (first.success, second.failure) == (True, Failure.TIMEOUT)


@virtual_time
async def test_at_the_timeout_of_the_turn_calls_are_cancelled_and_finished_results_are_kept() -> None:
    ended: list[float] = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())

    began = anyio.current_time()
    calls = Round(server("s", "hang", call=runs(hang)), server("t", "work", call=sleeps(3)))
    late, good = await calls.run(call("hang", id_="1"), call("work", id_="2"), seconds=5)
    assert (late.failure, late.content) == (Failure.TIMEOUT, "Stopped: the time for this turn is over.")
    assert good.content == "done"
    assert ended == [pytest.approx(began + 5)]
    assert len(calls.heard.of(ToolCallFinished)) == 2


@virtual_time
async def test_no_call_starts_after_the_timeout_of_the_turn() -> None:
    begun: list[float] = []

    async def hang() -> None:
        begun.append(anyio.current_time())
        await anyio.sleep_forever()

    calls = Round(server("s", "hang", call=runs(hang)), max_parallel=2)
    results = await calls.run(*(call("hang", id_=str(at)) for at in range(5)), seconds=5)
    assert [result.failure for result in results] == [Failure.TIMEOUT] * 5
    assert len(begun) == 2


@virtual_time
async def test_time_spent_waiting_for_a_person_counts_for_neither_the_turn_nor_the_tool() -> None:
    async def thinks(*_: object) -> Approval:
        await anyio.sleep(500)
        return Approval("once")

    calls = Round(server("s", "work", call=sleeps(4)), approve=thinks, tool_timeout=5)
    results = await calls.run(call("work", id_="1"), call("work", id_="2"), seconds=10)
    assert [result.success for result in results] == [True, True]


@virtual_time
async def test_the_timeout_of_the_turn_continues_after_a_persons_answer() -> None:
    async def thinks(*_: object) -> Approval:
        await anyio.sleep(500)
        return Approval("once")

    began = anyio.current_time()
    calls = Round(server("s", "work", call=runs(anyio.sleep_forever)), approve=thinks, tool_timeout=900)
    [result] = await calls.run(call("work"), seconds=10)
    assert result.failure is Failure.TIMEOUT
    assert anyio.current_time() - began == pytest.approx(510)


@virtual_time
async def test_a_running_call_times_out_while_a_person_decides_about_another_call() -> None:
    async def thinks(asked: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        await anyio.sleep(500)
        return Approval("deny")

    calls = Round(
        server("s", "work", call=runs(anyio.sleep_forever)),
        server("t", "other"),
        approve=thinks,
        rules=PolicyRules(allow=("*/work",)),
        tool_timeout=5,
    )
    began = anyio.current_time()
    late, denied = await calls.run(call("work", id_="1"), call("other", id_="2"), seconds=10)
    assert (late.failure, denied.failure) == (Failure.TIMEOUT, Failure.DENIED)
    finished = calls.heard.of(ToolCallFinished)
    assert [event.result.tool_call_id for event in finished] == ["1", "2"]
    assert anyio.current_time() - began == pytest.approx(500)
