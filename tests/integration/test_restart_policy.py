"""When a server that died is started again, and when it is given up."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from itertools import pairwise

import anyio
import pytest

from dial_client.servers.client_capabilities import ClientCapabilities
from dial_client.servers.connection import Connection
from dial_client.servers.restart_policy import (
    FIRST_PAUSE,
    LATER,
    MAX_DEATHS,
    MAX_PAUSE,
    Exit,
    ExitKind,
    RestartDecision,
    RestartPolicy,
)
from dial_client.servers.status import ServerState
from tests.support.fakes import virtual_time
from tests.support.servers.launch import (
    web,
)

pytestmark = pytest.mark.anyio

DIED = Exit(ExitKind.DIED, "it died")
GONE = Exit(ExitKind.UNREACHABLE, "nobody is there")
kill_9 = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


# When, and how often


def restarts(life_times: Iterator[float], supervisor: RestartPolicy, most: int = 50) -> list[float | None]:
    """Give the pauses before the lives of a server: how long each lives is given, in seconds."""
    now, pauses = 0.0, list[float | None]()
    for life in life_times:
        supervisor.came_up(now)
        now += life
        pauses.append(pause := supervisor.after(DIED, now).pause)
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


def test_a_server_that_lived_for_a_minute_begins_anew() -> None:
    life_times = iter([20.0, 20.0, 20.0, 61.0, 20.0])
    assert [bool(pause) for pause in restarts(life_times, RestartPolicy())] == [False, True, True, False, True]


def test_five_deaths_within_a_minute_are_the_end() -> None:
    supervisor = RestartPolicy()
    assert len(restarts(iter([0.1] * 50), supervisor)) == MAX_DEATHS == 5
    assert restarts(iter([61.0] * 50), supervisor) == [0.0] * 50, "somebody else may start it anew"
    assert None not in restarts(iter([20.0] * 50), RestartPolicy())


def test_a_server_that_never_became_ready_is_left_alone() -> None:
    verdict = RestartPolicy().after(DIED, 1.0)
    assert (verdict.state, verdict.error, verdict.pause) == (ServerState.FAILED, "it died", None)


def test_starts_that_come_to_nothing_end_too_however_long_they_take() -> None:
    supervisor, now, verdicts = RestartPolicy(), 0.0, list[RestartDecision]()
    supervisor.came_up(now)
    while not verdicts or verdicts[-1].pause is not None:
        verdicts.append(supervisor.after(DIED, now))
        now += 90.0
    assert len(verdicts) == 1 + MAX_DEATHS
    assert verdicts[-1].error == "it is given up after 5 starts in vain: it died"


@pytest.mark.parametrize("was_ready", [False, True])
def test_a_wrong_configuration_is_not_tried_again(was_ready: bool) -> None:
    supervisor = RestartPolicy()
    if was_ready:
        supervisor.came_up(0.0)
    verdict = supervisor.after(Exit(ExitKind.MISCONFIGURED, "no such command"), 1.0)
    assert (verdict.state, verdict.pause) == (ServerState.FAILED, None)


def test_a_url_nobody_answers_at_is_tried_a_few_times_more_and_anew_once_it_was_there() -> None:
    supervisor = RestartPolicy()
    for _ in range(2):
        verdicts = [supervisor.after(GONE, 0.0) for _ in range(len(LATER) + 1)]
        assert {verdict.state for verdict in verdicts} == {ServerState.FAILED}
        for pause, verdict in zip(LATER, verdicts, strict=False):
            assert verdict.pause is not None
            assert 0.75 * pause <= verdict.pause <= pause
        assert verdicts[-1].pause is None
        assert all(one <= two for one, two in pairwise(LATER))
        supervisor.came_up(100.0)
        supervisor.after(Exit(ExitKind.MISCONFIGURED), 200.0)


@virtual_time
async def test_an_owner_waits_as_long_as_it_should_and_no_longer() -> None:
    told: list[ServerState] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        server = Connection("it", web(address), ClientCapabilities(lambda _, status: told.append(status.state)))
        began = anyio.current_time()
        await server.run()
    assert 0.75 * sum(LATER) <= anyio.current_time() - began <= sum(LATER) + 1
    assert told == [ServerState.FAILED]
    assert server.status.restarts == len(LATER)
