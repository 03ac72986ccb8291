"""The audit log of dial-chat: on by default, without secrets, and read with ``dial-chat audit``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.inner import list_log_files
from tests.integration.test_changed_tools import EVIL
from tests.integration.test_changed_tools import configured as changed
from tests.integration.test_serve_shutdown import ask, serving
from tests.support.audit_logs import calls_of, lines_of, user_log
from tests.support.program import LONG, dial_chat, entry, started, write_config

no_signals = pytest.mark.skipif(os.name != "posix", reason="Windows has no signals to end it with")

ZONE = "CET-1CEST,M3.5.0,M10.5.0/3"
PLANTED = "planted-s3cret"
ECHO = {"tool_calls": [{"name": "echo", "arguments": {"text": f"{PLANTED}-argument"}}]}
ENTRY = entry("Server", autoApprove=["*"], env={"KEY": f"{PLANTED}-env"})


def configured(folder: Path, replies: Any = (ECHO, "Done."), **servers: Any) -> Path:
    write_config(folder, servers or {"raw": ENTRY}, list(replies))
    return folder


def test_dial_chat_records_decisions_and_calls(tmp_path: Path) -> None:
    ran = dial_chat(configured(tmp_path), "Go!")
    assert ran.returncode == 0, ran.stderr
    decision, end = calls_of(user_log(tmp_path))
    assert (decision["event"], decision["decision"], decision["tool"]) == ("decision", "allowed", "echo")
    assert decision["decided_by"] and decision["arguments_digest"].startswith("sha256:")
    assert (end["event"], end["outcome"], end["server"]) == ("call", "ok", "raw")
    assert end["conversation"] and end["turn"] and end["duration_s"] > 0 and end["result_bytes"] > 0
    assert (decision["id"], decision["program"]) == (end["id"], "dial-chat")


def test_a_call_without_an_approver_is_recorded_as_denied(tmp_path: Path) -> None:
    ran = dial_chat(configured(tmp_path, raw=entry("Server")), "Go!")
    assert ran.returncode == 5, ran.stderr
    decision, end = calls_of(user_log(tmp_path))
    assert (decision["decision"], end["outcome"]) == ("denied", "denied")


def test_a_refusal_of_a_changed_tool_is_recorded(tmp_path: Path) -> None:
    server = changed(tmp_path, autoApprove=["*"])
    dial_chat(tmp_path, "Go")
    server.write_config(tools=[EVIL])
    assert dial_chat(tmp_path, "Go").returncode == 5
    decision, end = calls_of(user_log(tmp_path))[-2:]
    assert (decision["decision"], decision["decided_by"]) == ("denied", "changed definition")
    assert (end["outcome"], end["tool"]) == ("denied", "echo")


def test_a_call_with_dial_chat_call_is_recorded(tmp_path: Path) -> None:
    assert dial_chat(configured(tmp_path), "call", "echo", "{}").returncode == 0
    assert [line["program"] for line in calls_of(user_log(tmp_path))] == ["dial-chat call"] * 2


@pytest.mark.parametrize(("words", "env"), [(["--no-audit"], {}), ([], {"DIAL_AUDIT": "off"})])
def test_the_audit_log_can_be_switched_off(tmp_path: Path, words: list[str], env: dict[str, str]) -> None:
    assert dial_chat(configured(tmp_path), *words, "Go!", **env).returncode == 0
    assert dial_chat(tmp_path, "call", *words, "echo", **env).returncode == 0
    assert list((tmp_path / "home").rglob("audit*")) == []


def test_an_unknown_value_of_dial_audit_is_an_error(tmp_path: Path) -> None:
    ran = dial_chat(configured(tmp_path), "Go!", DIAL_AUDIT="none")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "unknown DIAL_AUDIT 'none' (one of on, off, arguments)" in ran.stderr


def test_the_audit_log_contains_no_secret(tmp_path: Path) -> None:
    dial_chat(configured(tmp_path), "--system", f"{PLANTED}-system", f"{PLANTED}-question", OPENAI_API_KEY=PLANTED)
    dial_chat(tmp_path, "call", "echo", json.dumps({"text": f"{PLANTED}-by-hand"}))
    assert len(calls_of(user_log(tmp_path))) == 4
    assert PLANTED not in "".join(path.read_text() for path in list_log_files(user_log(tmp_path)))


@pytest.mark.parametrize(("words", "env"), [(["--audit-arguments"], {}), ([], {"DIAL_AUDIT": "arguments"})])
def test_the_audit_log_has_arguments_on_request_with_known_secrets_masked(
    tmp_path: Path, words: list[str], env: dict[str, str]
) -> None:
    arguments = {"env": f"<{PLANTED}-env>", "key": f"<{PLANTED}-key>", "text": "hello"}
    calls = {"tool_calls": [{"name": "echo", "arguments": arguments}]}
    configured(tmp_path, [calls, "Done."])
    assert dial_chat(tmp_path, *words, "Go!", **env, OPENAI_API_KEY=f"{PLANTED}-key").returncode == 0
    decision, end = calls_of(user_log(tmp_path))
    assert decision["arguments"] == {"env": "<***>", "key": "<***>", "text": "hello"}
    assert "arguments" not in end


@no_signals
def test_calls_of_two_conversations_of_a_service_are_distinguished(tmp_path: Path) -> None:
    configured(tmp_path, [ECHO, "One.", ECHO, "Two."])
    with serving(tmp_path) as (process, url, token):
        turns = []
        for _ in range(2):
            conversation_id = ask(url, token, "/conversations", "POST").json()["id"]
            answer = ask(
                url, token, f"/conversations/{conversation_id}/chat", "POST", json={"text": "Go!", "stream": False}
            )
            turns.append((conversation_id, answer.headers["x-turn-id"]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0
    lines = calls_of(user_log(tmp_path))
    assert [(line["conversation"], line["turn"]) for line in lines] == [turn for turn in turns for _ in range(2)]
    assert {line["program"] for line in lines} == {"dial-chat serve"}


# --- dial-chat audit ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audited_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where dial-chat has called one tool in a conversation, and one with ``dial-chat call``."""
    folder = configured(tmp_path_factory.mktemp("audited_folder"), raw=ENTRY, other=entry("Server"))
    replies = [{"tool_calls": [{"name": "raw__echo", "arguments": {}}]}, "Done."]
    (folder / "replies.json").write_text(json.dumps(replies))
    assert dial_chat(folder, "Go!").returncode == 0
    assert dial_chat(folder, "call", "other__echo").returncode == 0
    return folder


def shown(folder: Path, *words: str) -> list[dict[str, Any]]:
    ran = dial_chat(folder, "audit", *words, "--json")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_audit_shows_a_line_for_each_entry(audited_folder: Path) -> None:
    ran = dial_chat(audited_folder, "audit")
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [words[1:4] for words in lines] == [
        ["decision", "allowed", "raw/echo"],
        ["call", "ok", "raw/echo"],
        ["decision", "allowed", "other/echo"],
        ["call", "ok", "other/echo"],
    ]


def test_audit_filters_entries(audited_folder: Path) -> None:
    everything = shown(audited_folder)
    assert everything == calls_of(user_log(audited_folder))
    [conversation] = {line["conversation"] for line in everything if "conversation" in line}
    assert shown(audited_folder, "show", "--server", "raw") == everything[:2]
    assert (
        shown(audited_folder, "--server", "*")
        == shown(audited_folder, "--tool", "e*")
        == shown(audited_folder, "--since", "1h")
        == everything
    )
    assert shown(audited_folder, "--tool", "nothing") == shown(audited_folder, "--since", "2999-01-01") == []
    for id_ in (conversation, conversation[:8]):
        assert shown(audited_folder, "--conversation", id_) == everything[:2]
    assert shown(audited_folder, "tail", "-n", "1") == everything[-1:]
    assert shown(audited_folder, "tail", "--server", "raw", "-n", "1") == everything[1:2]


def test_audit_verifies_the_chain_and_shows_its_head(audited_folder: Path) -> None:
    head = lines_of(user_log(audited_folder))[-1]["digest"]
    ran = dial_chat(audited_folder, "audit", "verify")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, f"The chain is unbroken. Its head: {head}")
    assert dial_chat(audited_folder, "audit", "verify", "--head", head).returncode == 0
    assert dial_chat(audited_folder, "audit", "verify", "--head", "0" * 64).returncode == 1


def test_audit_names_the_changed_line(audited_folder: Path, tmp_path: Path) -> None:
    [path] = list_log_files(user_log(audited_folder))
    (tmp_path / path.name).write_bytes(path.read_bytes().replace(b'"allowed"', b'"denied!"', 1))
    ran = dial_chat(audited_folder, "audit", "verify", "--folder", str(tmp_path))
    assert ran.returncode == 1
    assert f"BROKEN: {path.name}, line 2: this line was edited" in ran.stdout
    report = json.loads(dial_chat(audited_folder, "audit", "verify", "--folder", str(tmp_path), "--json").stdout)
    assert (report["intact"], report["problem_line"]) == (False, 2)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no TZ")
def test_times_are_shown_in_the_zone_of_the_user_and_as_they_are_in_json(tmp_path: Path) -> None:
    line = {"event": "call", "time": "2026-07-01T22:30:05.123Z", "server": "a", "tool": "t", "outcome": "ok"}
    (tmp_path / "audit-000001.jsonl").write_text(json.dumps(line) + "\n")
    words = ["audit", "--folder", str(tmp_path)]
    shown = dial_chat(tmp_path, *words, TZ=ZONE).stdout
    assert shown.splitlines() == ["2026-07-02T00:30:05+02:00  call     ok          a/t"]
    shown_time = shown.partition("  ")[0]
    assert dial_chat(tmp_path, *words, "--since", shown_time, TZ=ZONE).stdout == shown
    assert json.loads(dial_chat(tmp_path, *words, "--json", TZ=ZONE).stdout)["time"] == line["time"]


def test_control_characters_of_an_audit_log_are_removed(tmp_path: Path) -> None:
    line = {"event": "call", "time": "\x1b[2J", "server": "a\nb", "tool": "\x1b]0;x\x07t", "outcome": "\u202eok"}
    (tmp_path / "audit-000001.jsonl").write_text(json.dumps(line) + "\n")
    ran = dial_chat(tmp_path, "audit", "--folder", str(tmp_path))
    assert ran.stdout.splitlines() == ["  call     ok          a b/t"]


@pytest.mark.parametrize(("words", "error"), [(["nothing"], "unknown action"), (["--since", "soon"], "is not a time")])
def test_invalid_options_of_audit_are_errors(tmp_path: Path, words: list[str], error: str) -> None:
    ran = dial_chat(tmp_path, "audit", *words)
    assert (ran.returncode, error in ran.stderr) == (2, True)


def test_audit_reports_a_missing_log(tmp_path: Path) -> None:
    ran = dial_chat(tmp_path, "audit")
    assert (ran.returncode, "there is no audit log in" in ran.stderr) == (0, True)
    assert not (tmp_path / "home").exists()


@no_signals
def test_audit_tail_follows_a_growing_log(tmp_path: Path) -> None:
    configured(tmp_path, raw=ENTRY)
    with started(tmp_path, "audit", "tail", "-f", "--json", PYTHONUNBUFFERED="1") as process:
        assert process.stdout is not None
        assert dial_chat(tmp_path, "call", "echo").returncode == 0
        assert dial_chat(tmp_path, "call", "echo").returncode == 0
        heard = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130
    assert heard == calls_of(user_log(tmp_path))
