"""The files of ``examples/`` run unchanged, with a scripted model instead of a real model."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import LONG

pytestmark = pytest.mark.once

FOLDER = Path(__file__).parents[2] / "examples"
PYRIGHT = FOLDER.parent / "build" / "npm" / "node_modules" / ".bin" / ("pyright.cmd" if os.name == "nt" else "pyright")
MAX_LINES = 39
TOKYO = {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]}


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


USAGE = {"usage": {"input_tokens": 20, "output_tokens": 5}}
INVOICE = '{"number": "2026-117", "due": "2026-12-15", "total": 119.0}'
CASES: list[tuple[str, list[Any], str]] = [
    ("hello", [TOKYO, "Noon."], r"Noon\.\n\['get_current_time'\] answered\n"),
    (
        "stream",
        [TOKYO, {"text": "It is noon.", "chunk_size": 4}],
        r"\[time: get_current_time \{'timezone': 'Asia/Tokyo'\}\]\n\[done\]\nIt is noon\.\n0 tokens were written\n",
    ),
    (
        "approval_bot",
        [call("deploy", version="1.2"), "Version 1.2 is live."],
        r"\[\w{4}\]: May I run deploy\(\{'version': '1\.2'\}\)\?\n\[\w{4}\]: Version 1\.2 is live\.\n",
    ),
    ("typed_answers", [call("read_invoice", name="a.pdf"), INVOICE], r"2026-117 2026-12-15 119\.00\n"),
    (
        "functions",
        [call("order", article="tea", count=2), "Ordered."],
        r"order \{'article': 'tea', 'count': 2\} \{\"ordered\": ?2, ?\"left\": ?1\}\nOrdered\.\n",
    ),
    (
        "hooks",
        [call("find_customer", name="Ada") | USAGE, "Since 2019."],
        r"Ada, \[address\] since 2019\nSince 2019\.\nThe tokens of today are used up\.\n",
    ),
    ("custom_provider", [], r"4 words: Polly wants a cracker \n?"),
    ("custom_store", ["Hello, Ada.", "Ada."], r"created 'Greetings'\nHello, Ada\.\nAda\.\ndeleted\n"),
    ("chat_loop", ["Hello, Ada.", "Ada."], r"> Hello, Ada\.\n> Ada\.\n> "),
    ("sessions", ["Hello, Ada."], r"Hello, Ada\. 2\n"),
    ("servers", [TOKYO, "Noon."], r"time ready .*get_current_time.*\ngone failed \(\)\nNoon\.\n"),
    ("batch", ["Japan.", {"error": {"message": "busy"}}, "Peru.", "Egypt."], r"(\w+: (failed: busy|\w+\.)\n){4}"),
]


@pytest.mark.parametrize(("name", "replies", "expected"), CASES, ids=[name for name, _, _ in CASES])
def test_an_example_runs_unchanged(
    name: str,
    replies: list[Any],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "replies.json"
    script.write_text(json.dumps(replies))
    monkeypatch.setenv("DIAL_MODEL", f"scripted:{script}")
    monkeypatch.setenv("DIAL_FOLDER", tmp_path.as_posix())
    monkeypatch.setattr("sys.stdin", io.StringIO("I am Ada.\nWho am I?\n\n"))
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.fullmatch(expected, printed), printed


PROCESS_WIDE = {
    "durable_turns": ([TOKYO, "Noon."], ["Noon."]),
    "traces": (
        [call("count_letters", word="tea") | USAGE, {"text": "Three."} | USAGE],
        [
            "  chat replies.json, 5 tokens written",
            "  execute_tool count_letters",
            "  chat replies.json, 5 tokens written",
            "invoke_agent, 10 tokens written",
            "Three.",
        ],
    ),
}
"""Examples with process-wide state: DBOS, and the tracer provider of OpenTelemetry."""


@pytest.mark.parametrize("name", PROCESS_WIDE)
def test_an_example_with_process_wide_state_runs_in_a_separate_process(name: str, tmp_path: Path) -> None:
    replies, expected = PROCESS_WIDE[name]
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    environ = os.environ | {"DIAL_MODEL": "scripted:replies.json", "DIAL_FOLDER": tmp_path.as_posix()}
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert (ended.stdout.splitlines()[-len(expected) :], ended.returncode) == (expected, 0), ended.stderr


def test_the_example_of_fastapi_streams_server_sent_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    script = tmp_path / "replies.json"
    script.write_text(json.dumps([TOKYO, "It is noon."]))
    monkeypatch.setenv("DIAL_MODEL", f"scripted:{script}")
    app = runpy.run_path(str(FOLDER / "fastapi_sse.py"))["app"]
    with TestClient(app) as browser:
        response = browser.post("/chat", json={"question": "What time is it in Tokyo?"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "event: tool_call\n" in response.text
    assert "It is noon." in response.text
    assert response.text.endswith("data: [DONE]\n\n")


def test_every_example_is_short_and_has_a_test() -> None:
    lines = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in FOLDER.glob("*.py")}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
    assert set(lines) == {name for name, _, _ in CASES} | {*PROCESS_WIDE, "fastapi_sse", "program_test"}


def test_the_example_of_a_test_passes() -> None:
    runpy.run_path(str(FOLDER / "program_test.py"))["test_the_model_adds_with_the_function"]()


@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not here: `make test` installs it with Node")
def test_pyright_accepts_every_example() -> None:
    pytest.importorskip("fastapi")
    command = [str(PYRIGHT), "--pythonpath", sys.executable, str(FOLDER)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert checked.returncode == 0, checked.stdout
