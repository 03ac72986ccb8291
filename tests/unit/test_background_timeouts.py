"""The times of calls in the background, and of calls that are waited for."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult

from tests.inner import BackgroundCalls, BackgroundTasks, Failure, OnCallProgress
from tests.support.fakes import Behaviour, server, text_result, virtual_time
from tests.support.tool_rounds import Round, call

pytestmark = [pytest.mark.anyio, virtual_time]


def takes(seconds: float, *, progress_every: float = math.inf) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        end = anyio.current_time() + seconds
        while (left := end - anyio.current_time()) > 0:
            await anyio.sleep(min(left, progress_every))
            await on_progress(seconds - left, seconds, "untrusted words")
        return text_result("done")

    return answer


@asynccontextmanager
async def round_of(behaviour: Behaviour, **limits: Any) -> AsyncIterator[tuple[Round, BackgroundCalls]]:
    calls = BackgroundCalls()
    calls.tasks = await BackgroundTasks.open()
    round_ = Round(server("clock", "now", call=behaviour), **limits)
    round_.executor = replace(round_.executor, scope=replace(round_.executor.scope, background=calls))
    try:
        yield round_, calls
    finally:
        await calls.tasks.aclose()


async def test_a_call_goes_to_the_background_after_its_seconds_and_has_the_maximum_time_from_then_on() -> None:
    async with round_of(takes(500), background_after=30) as (round_, calls):
        began = anyio.current_time()
        (first,) = await round_.run(call("now"))
        assert anyio.current_time() - began == pytest.approx(30)
        (running,) = calls.calls
        assert first.background == running.id
        assert await running.wait(1000)
        assert anyio.current_time() - began == pytest.approx(500), "more than tool_timeout, which is 60 seconds"
    assert running.build_result().content == f"[Background call {running.id}: ended: {running.name}]\ndone"


async def test_a_call_in_the_background_ends_at_the_maximum_timeout() -> None:
    async with round_of(takes(math.inf, progress_every=20), background_after=30) as (round_, calls):
        began = anyio.current_time()
        await round_.run(call("now"))
        assert await calls.calls[0].wait(1000)
        assert anyio.current_time() - began == pytest.approx(600)
        result = calls.calls[0].build_result()
    assert result.failure is Failure.TIMEOUT
    assert "within 600 seconds" in str(result.content)


async def test_the_progress_of_a_call_in_the_background_is_shown_in_numbers_alone() -> None:
    async with round_of(takes(100, progress_every=20), background_after=30) as (round_, calls):
        await round_.run(call("now"))
        await anyio.sleep(50)
        text = str(calls.calls[0].describe_running().content)
    assert "its progress is" in text
    assert "untrusted" not in text


@pytest.mark.parametrize(
    ("limits", "seconds", "expected"),
    [({"background_after": 120}, 1000, 60), ({"background_after": 30}, 20, 20)],
    ids=["of the call", "of the turn"],
)
async def test_a_timeout_before_the_background_ends_the_call(
    limits: dict[str, float], seconds: float, expected: float
) -> None:
    async with round_of(takes(500), **limits) as (round_, calls):
        began = anyio.current_time()
        (result,) = await round_.run(call("now"), seconds=seconds)
        assert anyio.current_time() - began == pytest.approx(expected)
    assert result.failure is Failure.TIMEOUT
    assert calls.calls == ()


async def test_a_call_that_ends_in_time_is_like_any_other() -> None:
    async with round_of(takes(20), background_after=30) as (round_, calls):
        (result,) = await round_.run(call("now"))
    assert (result.content, result.background, calls.calls) == ("done", "", ())
