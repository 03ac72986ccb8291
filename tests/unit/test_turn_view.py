"""The live line of a turn, and the duration that the line shows."""

from __future__ import annotations

import re
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.inner import (
    FROM_HOST,
    MONO,
    ConversationStatus,
    DialClient,
    Message,
    MessageCompleted,
    Options,
    Role,
    Screen,
    ScriptedProvider,
    ServerChanged,
    StatusChanged,
    TextPart,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    TurnView,
    UsageSum,
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
    screen.live.starting = ["archive", "maps"]
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


async def test_the_time_in_which_a_server_waits_for_its_form_is_no_time_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    screen, view = open_view()
    view.begin()
    for name in ("order", "weather"):
        view.show(ToolCallStarted(ToolCallRequest(name, name, {}), name, "run"))
    async with view.question(server="order"):
        assert [call.waits for call in screen.live.calls.values()] == [1, 0]
        now += 60
    assert [now - call.since for call in screen.live.calls.values()] == [0, 60]
    now += 2
    for name in ("order", "weather"):
        view.show(ToolCallFinished(ToolCallResult(name, success=True, content=""), name, 62.0))
    assert re.findall(r"[\d.]+ s", "".join(screen._printed)) == ["2.00 s", "62.00 s"]
    assert view.seconds == 2


async def test_calls_of_a_message_count_before_they_start_so_that_one_question_is_about_all_of_them() -> None:
    _, view = open_view()
    view.begin()
    calls = tuple(ToolCallRequest(name, name, {}) for name in ("log", "diff", "read"))
    view.show(MessageCompleted(Message(Role.ASSISTANT, "", tool_calls=calls)))
    for call in calls:
        assert view.running_calls == 3
        view.show(ToolCallStarted(call, "git", call.name))
    for left, call in enumerate(reversed(calls)):
        assert view.running_calls == 3 - left
        view.show(ToolCallFinished(ToolCallResult(call.id, success=True, content=""), "git", 0.1))


async def test_a_download_that_ends_with_its_turn_leaves_no_progress_behind() -> None:
    screen, view = open_view()
    view.begin()
    screen.live.progress = "downloading the model: 1 of 2 MB"
    view.end()
    assert not screen.live.progress


async def test_a_mode_that_the_key_only_passes_lets_no_call_run_and_a_message_chooses_the_mode_that_is_shown() -> None:
    dial = DialClient(ScriptedProvider([]))
    chat: Any = SimpleNamespace(dial=dial, options=Options(trust=True), conversation_id=None)
    async with anyio.create_task_group() as tasks:
        status = ConversationStatus(chat, UsageSum(), Screen(MONO), tasks)
        for _ in range(3):
            status.change_mode()
        assert (status.describe().mode, dial.approvals.mode) == ("auto", "ask")
        status.settle_mode()
        assert (status.describe().mode, dial.approvals.mode) == ("auto", "auto")
        status.change_mode()
        status.settle_mode()
        assert dial.approvals.mode == "ask"
        tasks.cancel_scope.cancel()


async def test_the_result_of_a_call_in_the_background_is_shown_as_a_result_and_not_as_words_of_the_user() -> None:
    screen, view = open_view()
    view.begin()
    text = f"{FROM_HOST}\n[Background call 0123abcd: ended: print_book]\n> /quit"
    view.show(MessageCompleted(Message(Role.USER, (TextPart(text, foreign=True),), steers=True)))
    printed = "".join(screen._printed)
    assert "✓ print_book(…)\n\x1b[2m  │ > /quit" in printed
    assert "From the host" not in printed


async def test_the_calls_of_a_program_are_lines_below_its_own_call_with_the_number_of_failed_calls() -> None:
    screen, view = open_view()
    view.begin()
    view.show(ToolCallStarted(ToolCallRequest("c", "run_code", {"code": "…"}), "", "run_code"))
    for number in range(1, 13):
        id_ = f"c/{number}"
        view.show(ToolCallStarted(ToolCallRequest(id_, "rain", {}), "weather", "rain", parent="c"))
        running = [call.name for call in screen.live.calls.values()]
        view.show(ToolCallFinished(ToolCallResult(id_, number != 2, "dry"), "weather", 0.1))
    assert running == ["run_code", "↳ weather.rain"]
    assert "".join(screen._printed) == ""
    view.show(ToolCallFinished(ToolCallResult("c", True, "12"), "", 1.0))
    lines = re.sub(r"\x1b\[\d*m", "", "".join(screen._printed)).strip("\n").split("\n")
    assert lines[0] == '✓ run_code(code="…") 1.00 s'
    assert lines[1:3] == ["  │ … 4 calls, 1 failed", "  │ ✓ weather.rain 0.10 s"]
    assert lines[-2:] == ["  │ ✓ weather.rain 0.10 s", "  │ 12"]
    assert len(lines) == 1 + 1 + 8 + 1
