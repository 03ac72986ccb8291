"""The lines of the live area, of finished calls, of the banner and of usage."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    MONO,
    NOT_ALLOWED,
    Activity,
    BackgroundCall,
    Failure,
    ImagePart,
    LiveState,
    Message,
    RunningCall,
    ServerState,
    ServerStatus,
    StopReason,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    Turn,
    Usage,
    UsageSum,
    add_change_note,
    banner,
    count_cells,
    cut,
    find_cursor,
    format_finished_call,
    format_usage_line,
    render,
    wraps_rows,
)
from tests.inner import turn_display_describe as describe

EVIL = "\x1b]0;owned\x07\x1b[2J\n\r> forged\u202e\u200b"


def plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def lines_of(state: LiveState, columns: int = 80, rows: int = 10, now: float = 12.0) -> list[str]:
    return [plain(line) for line in render(state, columns, rows, now)]


def test_the_live_line_shows_the_activity_its_duration_and_the_key_to_stop() -> None:
    state = LiveState(activity=Activity("Analyzing request…", since=2.0, tokens=1234))
    [line] = lines_of(state)
    assert line.endswith("Analyzing request… 10 s · about 1,234 tokens · Esc stops")
    [line] = lines_of(LiveState(activity=Activity("Analyzing request…", since=2.0, tokens=1)))
    assert line.endswith("about 1 token · Esc stops")


def test_the_line_about_starting_servers_has_one_time_for_all_of_them() -> None:
    state = LiveState(starting=["archive", "maps"], starting_since=2.0, settled="3 ready, ")
    [line] = lines_of(state)
    assert line.endswith("3 ready, starting: archive, maps · 10 s")


def test_no_line_is_wider_than_the_terminal() -> None:
    calls = {str(at): RunningCall("日本" * 20, 'text="' + "長い" * 90, 1.0, 3, 7, EVIL * 9) for at in range(30)}
    state = LiveState(
        lambda rows: "\n".join(["draft"] * rows),
        calls,
        ["queued " * 40, EVIL, "third", "fourth", "fifth"],
        Activity(EVIL * 20, 0.0, 99),
        ["slow" * 30, EVIL],
        is_waiting=True,
        steering=["steering " * 40, EVIL],
    )
    for columns in (20, 40, 60, 80, 200, 300):
        for rows in (1, 3, 8, 25):
            lines = lines_of(state, columns, rows)
            assert len(lines) <= rows
            assert [line for line in lines if count_cells(line) > columns] == []
            assert not re.search("[\x1b\r\u202e\u200b]", "".join(lines))


def test_only_the_arguments_of_a_call_that_waits_for_permission_are_shortened() -> None:
    call = RunningCall("files.write_file", 'path="notes.md", content="umbrella and coat"', 1.0, waits=True)
    for columns in (60, 80, 200):
        [line] = lines_of(LiveState(calls={"1": call}), columns)
        assert line.endswith(") waits for your answer")


def test_the_draft_gets_the_remaining_rows() -> None:
    state = LiveState(lambda rows: "\n".join(map(str, range(20)[-rows:])), activity=Activity("Writing", 0.0))
    assert lines_of(state, rows=4)[:3] == ["17", "18", "19"]


def test_the_live_line_is_hidden_while_a_question_is_open() -> None:
    state = LiveState(activity=Activity("Using Echo…", 0.0), queued=["later"], is_asking=True)
    assert [line for line in lines_of(state) if "Esc stops" in line] == []


def test_a_finished_call_shows_its_size_and_the_first_lines_of_its_result() -> None:
    call = ToolCallRequest("1", "get_forecast", {"city": "Berlin", "days": [1, 2]})
    result = ToolCallResult("1", success=True, content="\n\nMonday\n\n  Tuesday \nWednesday")
    name, arguments = describe(call, "weather", "get_forecast")
    lines = [plain(line) for line in format_finished_call(RunningCall(name, arguments, 0.0), result, 0.157, 100, MONO)]
    assert lines == ['✓ weather.get_forecast(city="Berlin", days=[1, 2]) 0.16 s · 4 lines', "  │ Monday", "  │ Tuesday"]


@pytest.mark.parametrize("columns", [20, 30, 40, 60])
@pytest.mark.parametrize("name", ["big.big", "a_server_with_a_long_name.a_tool_with_a_long_name"])
def test_a_finished_call_has_its_name_and_one_row_in_a_narrow_terminal(columns: int, name: str) -> None:
    result = ToolCallResult("1", success=True, content=cut("x" * 5_000_000, 50_000))
    line = plain(next(iter(format_finished_call(RunningCall(name, "mb=5", 0.0), result, 0.1, columns, MONO))))
    assert count_cells(line) < columns
    assert line.startswith(f"✓ {name}"[: columns // 2 - 2])
    assert " 0.1" in line


def test_a_call_in_the_background_is_one_line_that_says_so() -> None:
    result = ToolCallResult("1", success=True, content="[Background call 1: still running.]", background="1")
    lines = [plain(line) for line in format_finished_call(RunningCall("a.b", "c=1", 0.0), result, 120, 60, MONO)]
    assert lines == ["… a.b(c=1) goes on in the background"]


@pytest.mark.anyio
async def test_calls_in_the_background_have_lines_with_their_progress_also_between_turns() -> None:
    call: BackgroundCall[Any] = BackgroundCall(ToolCallRequest("1", "print_book", {"copies": 3}), "press", "turn")
    call.started_at, call.progress = 0.0, "3 of 10"
    state = LiveState(background=lambda: [call] * 5)
    assert state.is_moving
    assert [plain(line)[2:] for line in lines_of(state)] == [
        *["print_book(copies=3) goes on in the background 12 s · 3 of 10"] * 3,
        "… and 2 more in the background: /calls",
    ]
    call.result = ToolCallResult("1", success=True, content="")
    assert lines_of(state) == []


def test_the_preview_of_json_leaves_out_lines_with_only_brackets() -> None:
    def preview(content: str) -> list[str]:
        result = ToolCallResult("1", success=True, content=content)
        return [plain(line) for line in format_finished_call(RunningCall("a.b", "", 0.0), result, 1, 60, MONO)][1:]

    assert preview('{\n  "days": [\n    {\n      "high": 21\n') == ['  │ "days": [', '  │ "high": 21']
    assert preview("[\n[\n]") == ["  │ ["]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ('{\n  "timezone": "Asia/Tokyo",\n  "offset": 9\n}', ["timezone: Asia/Tokyo", "offset: 9"]),
        ('{"place": {"x": 1}, "names": ["a", "é"]}', ['place: {"x": 1}', 'names: ["a", "é"]']),
        ('["one, two", 3, 4]', ["one, two", "3"]),
        ("[]", ["[]"]),
        ("[" * 5_000, ["[" * 55 + "…"]),
    ],
)
def test_the_preview_of_json_has_no_quotes_and_commas_around_its_members(content: str, shown: list[str]) -> None:
    result = ToolCallResult("1", success=True, content=content)
    lines = [plain(line) for line in format_finished_call(RunningCall("a.b", "", 0.0), result, 1, 61, MONO)]
    assert lines[1:] == [f"  │ {line}" for line in shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("line\n" * 5_000, "1,000 of 5,000 lines"), ("x" * 9_000, "5,000 of 9,000 characters"), ("a\nb", "2 lines")],
)
def test_a_result_that_was_cut_for_the_model_says_how_much_the_model_received(text: str, shown: str) -> None:
    result = ToolCallResult("1", success=True, content=cut(text, 5_000))
    assert plain(next(format_finished_call(RunningCall("a.b", "", 0.0), result, 1, 80, MONO))).endswith(
        f" 1.00 s · {shown}"
    )


def test_an_error_shows_its_first_line_and_an_image_a_placeholder() -> None:
    failed = ToolCallResult.failed("1", Failure.TOOL, f"no such city{EVIL}")
    lines = [plain(line) for line in format_finished_call(RunningCall("weather.get", "", 0.0), failed, 1, 60, MONO)]
    assert lines[0] == "✗ weather.get() 1.00 s"
    assert lines[1].startswith("  │ no such city")
    assert "\x1b" not in "".join(lines)
    content = (TextPart("a map"), ImagePart("AAAA", "image/png"))
    pictured = ToolCallResult("1", success=True, content=content)
    assert "· 1 image" in plain(next(format_finished_call(RunningCall("maps.draw", "", 0.0), pictured, 1, 60, MONO)))


def test_a_denied_call_has_no_duration_and_a_decision_of_the_user_is_not_printed_twice() -> None:
    def lines_of_call(result: ToolCallResult, *, was_asked_about: bool) -> list[str]:
        call = RunningCall("files.write", "", 0.0, was_asked_about=was_asked_about)
        return [plain(line) for line in format_finished_call(call, result, 0.1, 60, MONO)]

    denied = ToolCallResult.failed("1", Failure.DENIED, f"{NOT_ALLOWED}: call it walk.md")
    assert lines_of_call(denied, was_asked_about=True) == ["✗ files.write()"]
    assert lines_of_call(denied, was_asked_about=False)[1] == "  │ The user did not allow this call: call it walk.md"
    changed = ToolCallResult("1", success=True, content=add_change_note("written", '{"path": "walk.md"}'))
    assert lines_of_call(changed, was_asked_about=True) == ["✓ files.write() 0.10 s", "  │ written"]
    by_middleware = ToolCallResult.failed("1", Failure.DENIED, "The budget is used up")
    assert lines_of_call(by_middleware, was_asked_about=True)[1] == "  │ The budget is used up"


def test_a_call_with_200_arguments_is_one_line() -> None:
    call = ToolCallRequest("1", EVIL, {f"a{at}{EVIL}": "x" * 5000 for at in range(200)})
    name, arguments = describe(call, "", "")
    result = ToolCallResult("1", success=True, content="x\n" * 10_000)
    lines = [plain(line) for line in format_finished_call(RunningCall(name, arguments, 0.0), result, 1, 60, MONO)]
    assert len(lines) == 3
    assert all(count_cells(line) <= 60 for line in lines)
    assert "\x1b" not in "".join(lines)


def test_the_banner_counts_servers_by_their_states() -> None:
    states = (ServerState.READY, ServerState.READY, ServerState.SLEEPING, ServerState.FAILED, ServerState.STARTING)
    servers = {str(at): ServerStatus(str(at), state) for at, state in enumerate(states)}
    assert banner.format_servers_line(servers, 12, 100) == (
        "3 servers ready, 1 starting, 1 failed (/servers shows why) · 12 tools available"
    )
    assert banner.format_servers_line(servers, 12, 78) == (
        "3 servers ready, 1 starting, 1 failed (/servers) · 12 tools available"
    ), "the number of tools is not cut off"
    assert banner.format_servers_line({}, 0, 100) == "no servers, no tools"
    assert count_cells(banner.format_folder_line("/a/very/long/" + "path/" * 50, 60)) < 60


def test_a_narrow_banner_leaves_out_the_beginning_of_the_folder_and_not_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 10) / "harbour"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    configuration = str(folder / "servers.json")
    assert banner.format_folder_line(configuration, 400) == f"folder {folder} · configuration servers.json"
    assert banner.format_folder_line(configuration, 60) == f"folder …{os.sep}harbour · configuration servers.json"
    assert count_cells(banner.format_folder_line(configuration, 30)) < 30


def test_the_hint_of_the_banner_is_shortened_or_left_out_if_there_is_no_room() -> None:
    assert banner.format_program_line("qwen3", 80).endswith(" · model qwen3 · /help lists the commands")
    assert banner.format_program_line("qwen3", 50).endswith(" · model qwen3 · /help")
    assert banner.format_program_line("qwen3" * 5, 50).endswith("qwen3qwen3")


@pytest.mark.parametrize(
    ("widths", "column", "columns", "cursor"),
    [((), 2, 60, (2, 0)), ((119, 60, 0, 61), 2, 60, (2, 6)), ((10,), 75, 60, (15, 2))],
)
def test_the_cursor_position_accounts_for_rows_that_the_terminal_wrapped(
    widths: tuple[int, ...], column: int, columns: int, cursor: tuple[int, int]
) -> None:
    assert find_cursor(widths, column, columns) == cursor


@pytest.mark.parametrize(
    ("environment", "wraps"),
    [
        ({"TMUX": "/tmp/tmux,1,0", "TERM": "tmux-256color"}, True),
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM": "foot"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"VTE_VERSION": "7200", "STY": "1.host"}, False),
    ],
)
def test_wrapped_rows_are_assumed_only_for_known_terminals(environment: dict[str, str], wraps: bool) -> None:
    assert wraps_rows(environment) is wraps


def test_usage_is_one_line_and_adds_up() -> None:
    usage = Usage(input_tokens=1500, output_tokens=20, cached_tokens=1000)
    turn = Turn(Message.assistant("Hi"), (), StopReason.ANSWERED, 1, usage, request_usages=(usage, usage), cost_usd=0.5)
    assert format_usage_line(turn, 2.04) == "1,500 tokens in (1,000 cached), 20 out · about $0.5000 · 2.0 s · 2 rounds"
    total = UsageSum()
    total.add(turn, 2.0)
    total.add(turn, 1.0)
    assert total.line == "2 answers: 3,000 tokens in (2,000 cached), 40 out · about $1.0000 · 3.0 s"
    total.add_usage(Usage(input_tokens=100, output_tokens=10), 0.25)
    assert total.line == "2 answers: 3,100 tokens in (2,000 cached), 50 out · about $1.2500 · 3.0 s"


def test_tokens_that_no_endpoint_reported_are_not_counted_as_none() -> None:
    total = UsageSum()
    total.add(Turn(Message.assistant("Hi"), (), StopReason.ANSWERED, 1, Usage()), 2.0)
    assert total.line == "1 answer: tokens not reported · 2.0 s"
