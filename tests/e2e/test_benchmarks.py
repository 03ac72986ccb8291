"""The benchmarks run; their numbers are not judged."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from benchmarks import gateway
from benchmarks.case_list import all_cases
from benchmarks.child import measured
from benchmarks.dial import main
from benchmarks.fidelity import offers
from benchmarks.fidelity.oracle import ANSWER, WAYS, Oracle, OracleServer, Way
from benchmarks.fidelity.tasks import Call, TaskTurn
from benchmarks.hosts.tables import BEGIN, END, find_differences
from benchmarks.load.faults import is_untrue
from benchmarks.report import Row, rows_of, table
from benchmarks.search import multiplied
from benchmarks.search_data import tools
from benchmarks.server_entries import server_entries
from tests.inner import INTERRUPTED, build_interrupted_result
from tests.support.fork_server import FORK_CLIENT, ForkedProcess, can_fork, start_server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs that a benchmark starts are forks, where there can be forks: their starts would be most of the work."""
    if not can_fork([sys.executable], os.environ):
        return
    usual, start = sys.executable, subprocess.Popen
    python = tmp_path / "python"
    fork = shlex.join([usual, "-S", "-E", str(FORK_CLIENT), start_server()])
    choice = f'[ "$1" = -m ] || exec {shlex.quote(usual)} "$@"'
    python.write_text(f'#!/bin/sh\n{choice}\nexec {fork} "$@"\n', encoding="utf-8")
    python.chmod(0o755)

    def start_fork(command: Any, *arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        # The processor time and the memory of a program are read from its own process.
        if [*command[:2]] == [str(python), "-m"]:
            return ForkedProcess([usual, *command[1:]], *arguments, **options)
        return start(command, *arguments, **options)

    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(subprocess, "Popen", start_fork)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("forks")
def test_every_case_runs_on_both_sides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(sys, "argv", ["benchmarks.dial", "--smoke", "--json"])
    main()
    report = json.loads(capsys.readouterr().out)
    unmeasured = {"shown"} if sys.platform == "win32" else set()
    assert {row["case"] for row in report["rows"]} == set(all_cases()) - unmeasured
    for row in report["rows"]:
        assert row["floor"] > 0, row
        assert row["dial"] > 0, row
        assert row["samples"] == 1, row
        assert math.isclose(row["ratio"], row["dial"] / row["floor"]), row


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor time of another process")
def test_this_host_does_the_work_and_passes_the_probes_that_other_hosts_get(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.hosts", "--smoke", "--json", str(tmp_path / "report.json")]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    for task, row in report["cells"].items():
        cell = row["dial_client"]
        assert not cell["problem"], (task, cell["problem"])
        [sample] = cell["samples"]
        assert all(value > 0 for value in sample.values()), (task, sample)
    assert [outcome["findings"] for outcome in report["outcomes"]["dial_client"]] == [[], []]
    assert "| kinds of failure passed | 2 of 2 |" in ended.stdout


def test_one_case_is_printed_as_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(sys, "argv", ["benchmarks.dial", "--smoke", "--only", "functions"])
    main()
    heads, wall, cpu, *rest = capsys.readouterr().out.splitlines()
    assert heads.split() == ["case", "metric", "floor", "dial", "dial/floor", "of", "pairs", "n"]
    assert wall.startswith("5 tool rounds: functions as tools")
    assert "wall ms" in wall
    assert "CPU ms" in cpu
    assert rest[-1].startswith("Python ")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor time of another process")
@pytest.mark.usefixtures("forks")
def test_the_gateway_is_measured_beside_a_direct_connection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.gateway", "--smoke", "--json"])
    gateway.main()
    report = json.loads(capsys.readouterr().out)
    assert len(report["calls"]) == 10, "five programs in two revisions"
    assert all(row["processor"] > 0 and row["p50"] <= row["p99"] for row in report["calls"])
    assert all(value > 0 for value in report["start"].values())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the memory of another process")
def test_the_service_is_measured_under_load() -> None:
    command = [sys.executable, "-m", "benchmarks.load", "--smoke", "--json"]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    [figures] = json.loads(ended.stdout)["services"].values()
    assert all(window["turns_a_second"] > 0 and window["processor_ms"] > 0 for window in figures["saturated"])
    [waits] = figures["rates"].values()
    assert (waits["failed"], len(figures["streams"])) == (0, 1)
    assert all(value > 0 for value in waits["first_byte"])
    assert all(value >= 0 for value in waits["gap"]), "a busy machine reads several pieces at once"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processes that a process has started")
def test_servers_that_are_killed_under_load_lose_and_repeat_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.load", "--faults", "--smoke", "--json"]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout, ended.stderr
    [row] = json.loads(ended.stdout)
    assert row["accepted"] == row["stored"] + row["noted"] > 0, row
    assert row["turns"] == row["answered"] + row["told"] + row["cut_off"], row
    assert [row[name] for name in ("lost", "repeated", "denied", "silent")] == [0, 0, 0, 0], row


def test_an_unknown_result_is_true_of_a_call_that_ran_and_of_a_call_that_did_not() -> None:
    unknown = [INTERRUPTED, str(build_interrupted_result("call_1", "it was cancelled").content)]
    assert not any(is_untrue([result], "Look!", Counter(ran)) for result in unknown for ran in ((), ("Look!",)))
    assert is_untrue(["Not run: it was cancelled."], "Look!", Counter(["Look!"]))
    assert is_untrue(["Look!"], "Look!", Counter())


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way.host == "dial_client" and way.search], ids=lambda way: way.title
)
def test_the_model_that_knows_a_task_plays_it_through_this_host(
    way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(offers, "ENVIRONMENTS", tmp_path)
    first, *_, last = (tool for tool in multiplied(tools(), 20) if not tool.input_schema.get("required"))
    turn = TaskTurn("Do what is to be done.", tuple(Call("catalog", tool.name, {}) for tool in (first, last)))
    servers = {"catalog": {"command": sys.executable, "args": ["-m", "benchmarks.fidelity.server", "catalog", "20"]}}
    with OracleServer() as server:
        settings = {"base_url": server.url, "servers": servers, "code": way.code, "search": way.search}
        names = [(call.server, call.tool) for call in turn.calls]
        with offers.HostProcess(sys.executable, way.host, {**settings, "tools": names}) as process:
            oracle = server.oracle = Oracle(way, dict(zip(names, process.read(), strict=True)))
            oracle.begin(turn)
            answer = process.do(ask=turn.text, patterns=["catalog/*"], first=True)
    assert answer["text"] == ANSWER, answer
    assert oracle.requests == (3 if way.code else 4), "a search, the calls, the answer"
    assert oracle.find_fault(["nothing", "nothing"]) == ""
    assert oracle.find_fault(["nothing", "something"]).endswith("'nothing', not 'something'")


def test_a_row_has_the_medians_their_ratio_and_the_range_of_the_pairs() -> None:
    seconds = {"floor": (1, 2, 4), "dial": (3, 3, 6)}
    samples = {side: [{"t ms": value} for value in values] for side, values in seconds.items()}
    rows = rows_of("case", "what is done", samples)
    assert rows == [Row("case", "what is done", "t ms", 2, 3, 1.5, 1.5, 3.0, 3)]
    assert " ".join(table(rows).splitlines()[1].split()) == "what is done t ms 2.0 3.0 1.50 1.50 - 3.00 3"


def test_a_program_is_measured_until_it_answers_and_until_it_ends() -> None:
    late = "import time; print('here', flush=True); time.sleep(0.2); raise SystemExit(3)"
    seen = measured(b"here", [sys.executable, "-I", "-S", "-c", late])
    assert seen["code"] == 3
    assert 0 < seen["answer_ms"] < seen["exit_ms"]
    assert measured(b"never", [sys.executable, "-I", "-S", "-c", "print('here')"])["answer_ms"] is None


@pytest.mark.anyio
@pytest.mark.parametrize(("mode", "era"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_raw_server_supports_both_protocol_eras(mode: Literal["legacy", "auto"], era: str) -> None:
    entry = server_entries(tools=3, call_delay=0.01)["server0"]
    given_back: set[str] = set()
    with anyio.fail_after(30):
        async with Client(StdioServerParameters(command=entry["command"], args=entry["args"]), mode=mode) as client:
            assert client.protocol_version == era
            tools = [tool.name for tool in (await client.list_tools()).tools]

            async def call(name: str) -> None:
                result = await client.call_tool(name, {"text": f"said by {name}"})
                given_back.update(block.text for block in result.content if isinstance(block, TextContent))

            async with anyio.create_task_group() as group:
                for name in tools:
                    group.start_soon(call, name)
    assert tools == ["server0_tool_000", "server0_tool_001", "server0_tool_002"]
    assert given_back == {f"said by {name}" for name in tools}


def test_ratios_of_two_runs_differ_if_their_spreads_do_not_overlap(tmp_path: Path) -> None:
    def write(*cells: str) -> str:
        heads = "| work | plain loop | dial_client | mcp-use |"
        return f"**Time until the answer**, …\n\n{heads}\n| rounds | {' | '.join(cells)} |"

    file = tmp_path / "performance.md"
    file.write_text(f"{BEGIN}\n{write('20.0 (19.0 - 21.0)', '0.66 (0.62 - 0.73)', 'not measured')}\n{END}\n", "utf-8")
    assert find_differences(file, write("90.0 (80.0 - 99.0)", "0.75 (0.70 - 0.80)", "1.40 (1.18 - 1.54)")) == []
    assert find_differences(file, write("20.0 (19.0 - 21.0)", "0.80 (0.75 - 0.85)", "not measured")) == [
        "Time until the answer, rounds, dial_client: 0.8 (0.75 - 0.85), before 0.66 (0.62 - 0.73)"
    ]
