"""Limits of a turn, and a deadline that pauses while a person is asked."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.inner import Deadline, Limits, StopReason
from tests.support.fakes import virtual_time


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_depth": -1},
        {"max_depth": 101},
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": math.nan},
        {"tool_timeout": 0},
        {"tool_timeout_max": 0},
        {"max_parallel": 0},
        {"max_result_chars": 0},
        {"max_consecutive_errors": 0},
        {"max_repeats": 0},
        {"max_calls_per_round": 0},
        {"max_tokens_total": 0},
    ],
    ids=str,
)
def test_an_invalid_limit_is_an_error_that_names_the_limit(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize(
    "right",
    [{}, {"max_depth": 0}, {"max_depth": 100}, {"timeout": math.inf}, {"timeout": 0.5}, {"max_result_chars": 1}],
    ids=str,
)
def test_the_extreme_values_of_a_limit_are_valid(right: dict[str, Any]) -> None:
    assert Limits(**right).max_parallel == 8


def test_every_limit_has_a_default() -> None:
    assert Limits() == Limits(
        max_depth=10, timeout=120, tool_timeout=60, tool_timeout_max=600, max_parallel=8, max_result_chars=50_000
    )


def test_a_limit_cannot_be_changed_while_a_turn_runs() -> None:
    with pytest.raises(FrozenInstanceError):
        Limits().timeout = 5  # type: ignore[misc]  # the assignment is the test


def test_every_stop_reason_has_a_sentence() -> None:
    assert all(reason.sentence and not reason.sentence.endswith(".") for reason in StopReason)
    assert {reason for reason in StopReason if reason.is_limit} == {
        StopReason.MAX_DEPTH,
        StopReason.CONSECUTIVE_ERRORS,
        StopReason.REPEATED_CALLS,
        StopReason.TOKEN_BUDGET,
        StopReason.COST_BUDGET,
        StopReason.TIMEOUT,
    }


def compute_remaining(deadline: Deadline) -> float:
    """Return the seconds left, at least 0."""
    with deadline.scope() as scope:
        return max(0.0, scope.deadline - anyio.current_time())


@pytest.mark.anyio
async def test_a_scope_has_no_deadline_while_a_person_is_asked() -> None:
    deadline = Deadline(60)
    with deadline.scope() as scope:
        before = scope.deadline
        with deadline.pause():
            assert (scope.deadline, compute_remaining(deadline)) == (math.inf, math.inf)
            with deadline.scope() as inner:
                assert inner.deadline == math.inf
        assert before <= scope.deadline < before + 60
        assert 0 < compute_remaining(deadline) <= 60


@pytest.mark.anyio
async def test_the_deadline_of_a_finished_scope_is_not_changed() -> None:
    deadline = Deadline(60)
    with deadline.scope() as scope:
        pass
    with deadline.pause():
        assert scope.deadline < math.inf


@pytest.mark.anyio
async def test_the_clock_continues_after_a_wait_that_failed() -> None:
    deadline = Deadline(60)
    with pytest.raises(ZeroDivisionError), deadline.pause():
        raise ZeroDivisionError
    assert compute_remaining(deadline) <= 60


@virtual_time
@pytest.mark.anyio
async def test_work_that_runs_at_the_deadline_is_cancelled() -> None:
    deadline = Deadline(5)
    began = anyio.current_time()
    with deadline.scope() as scope:
        await anyio.sleep(100)
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(5)
    assert compute_remaining(deadline) == 0


@virtual_time
@pytest.mark.anyio
async def test_work_that_begins_after_the_deadline_is_cancelled_at_once() -> None:
    deadline = Deadline(5)
    await anyio.sleep(6)
    with deadline.scope() as scope:
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


@virtual_time
@pytest.mark.anyio
async def test_time_spent_waiting_for_a_person_does_not_count() -> None:
    deadline = Deadline(5)
    began = anyio.current_time()
    with deadline.scope() as scope:
        await anyio.sleep(2)
        with deadline.pause():
            await anyio.sleep(1000)
        await anyio.sleep(100)
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(1005)


WAITS: list[tuple[str, list[tuple[float, float]], float]] = [
    ("one within another", [(0, 10), (3, 5)], 10),
    ("the first ends first", [(0, 5), (3, 10)], 10),
    ("three that overlap in a row", [(0, 4), (3, 8), (7, 11)], 11),
    ("one after the other", [(0, 2), (4, 6)], 4),
    ("the same twice", [(1, 4), (1, 4)], 3),
]


@virtual_time
@pytest.mark.anyio
@pytest.mark.parametrize(("waits", "paused"), [w[1:] for w in WAITS], ids=[w[0] for w in WAITS])
async def test_overlapping_waits_count_once(waits: list[tuple[float, float]], paused: float) -> None:
    deadline = Deadline(100)
    began = anyio.current_time()

    async def wait(since: float, until: float) -> None:
        await anyio.sleep(since)
        with deadline.pause():
            await anyio.sleep(until - since)

    async with anyio.create_task_group() as group:
        for since, until in waits:
            group.start_soon(wait, since, until)
    elapsed = anyio.current_time() - began
    assert compute_remaining(deadline) == pytest.approx(100 - elapsed + paused)


@virtual_time
@pytest.mark.anyio
async def test_the_reserve_moves_the_deadline_of_work_that_runs_and_a_pause_moves_both() -> None:
    deadline = Deadline(80, reserve=20)
    began = anyio.current_time()
    with deadline.scope() as scope:
        await anyio.sleep(70)
        with deadline.pause():
            deadline.allow_reserve(allowed=True)
            await anyio.sleep(1000)
        await anyio.sleep(25)
        assert not deadline.is_over
        deadline.allow_reserve(allowed=True)
        await anyio.sleep(100)
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(1100)
    assert deadline.is_over


@virtual_time
@pytest.mark.anyio
async def test_without_its_reserve_a_deadline_may_be_over_at_once() -> None:
    deadline = Deadline(80, reserve=20)
    deadline.allow_reserve(allowed=True)
    await anyio.sleep(90)
    with deadline.scope() as scope:
        assert not deadline.is_over
        deadline.allow_reserve(allowed=False)
        await anyio.sleep(1)
    assert scope.cancelled_caught
    assert deadline.is_over
