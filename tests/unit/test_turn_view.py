"""The live line of a turn, and the duration that the line shows."""

from __future__ import annotations

import time
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from tests.inner import (
    MONO,
    Screen,
    ServerChanged,
    StatusChanged,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    TurnView,
    process_runner,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
async def _interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_runner, "interrupts", process_runner.Interrupts(), raising=False)


def open_view() -> tuple[Screen, TurnView]:
    screen = Screen(MONO, has_input=False)
    return screen, TurnView(screen)


async def ask(view: TurnView, number: int) -> None:
    async with view.question(None if number else "unknown call"):
        await anyio.lowlevel.checkpoint()


async def test_overlapping_waits_for_a_person_are_subtracted_once() -> None:
    screen, view = open_view()
    view.begin()
    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(partial(ask, view, number))
    view.show(StatusChanged("Writing…"))
    assert screen.live.activity is not None
    assert screen.live.activity.since <= time.monotonic(), "otherwise the duration of the turn would be negative"


async def test_the_time_of_a_question_before_the_turn_is_not_subtracted() -> None:
    screen, view = open_view()
    async with view.question():
        view.begin()
    view.show(StatusChanged("Writing…"))
    assert screen.live.activity is not None
    assert screen.live.activity.since <= time.monotonic()


async def test_a_turn_waits_for_servers_until_its_first_event() -> None:
    screen, view = open_view()
    screen.live.starting = {"archive": 0.0, "maps": 0.0}
    view.begin()
    view.show(ServerChanged("maps", "failed"))
    assert screen.live.is_waiting, "the archive server is still starting"
    view.show(StatusChanged("Analyzing request…"))
    assert not screen.live.is_waiting


async def test_the_live_line_names_only_running_calls() -> None:
    screen, view = open_view()
    view.begin()
    for name in ("radar", "forecast", "station"):
        view.show(ToolCallStarted(ToolCallRequest(name, name, {}), "weather", name))
        view.show(StatusChanged(f"Using {name}…"))
    shown = []
    for name in ("station", "forecast"):
        view.show(ToolCallFinished(ToolCallResult(name, True, "rain"), "weather", 0.1))
        assert screen.live.activity is not None
        shown.append(screen.live.activity.text)
    assert shown == ["Waiting for 2 calls…", "Waiting for weather.radar…"]


async def test_a_download_that_ends_with_its_turn_leaves_no_progress_behind() -> None:
    screen, view = open_view()
    view.begin()
    screen.live.progress = "downloading the model: 1 of 2 MB"
    view.end()
    assert not screen.live.progress
