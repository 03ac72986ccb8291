"""The restart policy: pauses between restarts of a server, and limits after which it stays stopped."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from itertools import pairwise

import anyio
import pytest

from tests.inner import (
    FIRST_PAUSE,
    MAX_DEATHS,
    MAX_PAUSE,
    UNREACHABLE_PAUSES,
    ClientCapabilities,
    Connection,
    Exit,
    ExitKind,
    RestartPolicy,
    ServerState,
)
from tests.support.fakes import virtual_time
from tests.support.servers.launch import web

pytestmark = pytest.mark.anyio

DIED = Exit(ExitKind.DIED, "it died")
GONE = Exit(ExitKind.UNREACHABLE, "nobody is there")
kill_9 = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


# Pauses and limits


def died(ready_at: float) -> Exit:
    return Exit(ExitKind.DIED, "it died", ready_at)


def restarts(durations: Iterator[float], policy: RestartPolicy, most: int = 50) -> list[float | None]:
    """Return the pauses between sessions that last `durations` seconds."""
    now, pauses = 0.0, list[float | None]()
    for duration in durations:
        now += duration
        pauses.append(pause := policy.decide(died(now - duration), now).pause)
        if pause is None or len(pauses) == most:
            break
        now += pause
    return pauses


def test_pauses_grow_and_are_jittered_and_bounded() -> None:
    many = [restarts(iter([20.0] * 20), RestartPolicy()) for _ in range(20)]
    for at, pauses in enumerate(zip(*many, strict=True)):
        full = 0.0 if at == 0 else min(MAX_PAUSE, FIRST_PAUSE * 2 ** (at - 1))
        assert all(pause is not None and 0.75 * full <= pause <= full for pause in pauses)
        assert at == 0 or len(set(pauses)) > 1
    assert [round(FIRST_PAUSE * 2**n, 1) for n in range(4)] == [0.5, 1, 2, 4]


def test_the_pauses_start_again_after_a_session_of_a_minute() -> None:
    durations = iter([20.0, 20.0, 20.0, 61.0, 20.0])
    assert [bool(pause) for pause in restarts(durations, RestartPolicy())] == [False, True, True, False, True]


def test_five_exits_within_a_minute_end_the_restarts() -> None:
    policy = RestartPolicy()
    assert len(restarts(iter([0.1] * 50), policy)) == MAX_DEATHS == 5
    assert restarts(iter([61.0] * 50), policy) == [0.0] * 50, "somebody else may start it anew"
    assert None not in restarts(iter([20.0] * 50), RestartPolicy())


def test_a_server_that_never_became_ready_is_not_restarted() -> None:
    decision = RestartPolicy().decide(DIED, 1.0)
    assert (decision.state, decision.error, decision.pause) == (ServerState.FAILED, "it died", None)


def test_failed_starts_end_the_restarts_even_if_they_take_long() -> None:
    policy, now = RestartPolicy(), 0.0
    decisions = [policy.decide(died(ready_at=now), now)]
    while decisions[-1].pause is not None:
        now += 90.0
        decisions.append(policy.decide(DIED, now))
    assert len(decisions) == 1 + MAX_DEATHS
    assert decisions[-1].error == "it is given up after 5 failed starts: it died"


def test_a_server_with_a_reopened_session_counts_as_ready() -> None:
    policy = RestartPolicy()
    policy.record_ready(Exit(ExitKind.REOPENED, ready_at=0.0))
    assert policy.decide(DIED, 1.0).state is ServerState.RESTARTING


@pytest.mark.parametrize("was_ready", [False, True])
def test_an_invalid_configuration_is_not_retried(was_ready: bool) -> None:
    ready_at = 0.0 if was_ready else None
    decision = RestartPolicy().decide(Exit(ExitKind.MISCONFIGURED, "no such command", ready_at), 1.0)
    assert (decision.state, decision.pause) == (ServerState.FAILED, None)


def test_an_unreachable_url_is_retried_a_few_times_and_again_after_it_was_ready() -> None:
    policy = RestartPolicy()
    for _ in range(2):
        decisions = [policy.decide(GONE, 0.0) for _ in range(len(UNREACHABLE_PAUSES) + 1)]
        assert {decision.state for decision in decisions} == {ServerState.FAILED}
        for pause, decision in zip(UNREACHABLE_PAUSES, decisions, strict=False):
            assert decision.pause is not None
            assert 0.75 * pause <= decision.pause <= pause
        assert decisions[-1].pause is None
        assert all(shorter <= longer for shorter, longer in pairwise(UNREACHABLE_PAUSES))
        policy.decide(Exit(ExitKind.MISCONFIGURED, "", ready_at=100.0), 200.0)


@virtual_time
async def test_the_supervisor_task_ends_after_the_last_retry() -> None:
    states: list[ServerState] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        server = Connection("it", web(address), ClientCapabilities(lambda _, status: states.append(status.state)))
        began = anyio.current_time()
        await server.run()
    assert 0.75 * sum(UNREACHABLE_PAUSES) <= anyio.current_time() - began <= sum(UNREACHABLE_PAUSES) + 1
    assert states == [ServerState.FAILED]
    assert server.status.restarts == len(UNREACHABLE_PAUSES)
