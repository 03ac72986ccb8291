"""The commands `dial-chat doctor` and `dial-chat bug-report`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.program import dial_chat, entry, trust, write_config
from tests.support.pseudo_terminal import terminal
from tests.support.screens import screen

pytestmark = pytest.mark.once

FAULTY = """{
  // mine
  "mcpServers": {
    "it": {"comand": "x", "command": "%s", "args": ["-c", "raise SystemExit('no license')"]}
  }
}
"""


def test_findings_have_a_place_and_a_code_and_errors_set_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text(FAULTY % sys.executable)
    trust(tmp_path)
    ran = dial_chat(tmp_path, "doctor", "--only", "config", "--only", "servers")
    assert ran.returncode == 1
    lines = ran.stdout.splitlines()
    assert lines[0] == (
        "servers.json:4:5: error DC301: server 'it' does not start: "
        "the server ended with exit code 1; it last said: no license"
    )
    assert lines[1].startswith("servers.json:4:12: warning DC102: mcpServers.it.comand")
    assert lines[-1].startswith("1 error, 1 warning; --fix repairs 1 of them.")


def test_a_fix_keeps_comments_and_trust_and_makes_a_backup(tmp_path: Path) -> None:
    text = '{\n  // mine\n  "mcpServers": {}, "defaultModle": "local"\n}\n'
    (tmp_path / "servers.json").write_text(text)
    trust(tmp_path)
    ran = dial_chat(tmp_path, "doctor", "--fix", "--only", "config")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "Nothing is wrong with the configuration.")
    mended = (tmp_path / "servers.json").read_text()
    assert "// mine" in mended
    assert '"defaultModel": "local"' in mended
    assert (tmp_path / "servers.json.bak").read_text() == text
    assert dial_chat(tmp_path, "doctor", "--only", "config").stdout == "Nothing is wrong with the configuration.\n"


def test_a_correct_configuration_has_no_finding_as_json(tmp_path: Path) -> None:
    write_config(tmp_path, {"it": entry("Server")})
    ran = dial_chat(tmp_path, "doctor", "--json", "--only", "config", "--only", "servers", "--only", "tools")
    assert (ran.returncode, json.loads(ran.stdout)) == (0, [])


def test_a_file_that_is_not_trusted_starts_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    program = f"open({str(mark)!r}, 'w')"
    settings = {"mcpServers": {"it": {"command": sys.executable, "args": ["-c", program]}}}
    (tmp_path / "servers.json").write_text(json.dumps(settings))
    ran = dial_chat(tmp_path, "doctor", "--only", "config", "--only", "servers")
    assert "DC114" in ran.stdout and ran.returncode == 1
    only = dial_chat(tmp_path, "doctor", "--only", "servers")
    assert "DC114" in only.stdout and only.returncode == 1
    assert not mark.exists()


def test_a_report_is_shown_and_written_only_with_consent(tmp_path: Path) -> None:
    write_config(tmp_path, {"it": entry("Server", env={"API_KEY": "sk-live-4f9a8b7c6d5e4f3a2b1c"})})
    refused = dial_chat(tmp_path, "bug-report", "report.md")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert not (tmp_path / "report.md").exists()
    assert dial_chat(tmp_path, "bug-report", "report.md", "--yes").returncode == 0
    written = (tmp_path / "report.md").read_text()
    assert "- it: ready, raw 1, MCP 2025-11-25, 1 tool" in written
    assert "sk-live" not in written
    assert "DC110" in written


def test_the_database_of_a_service_is_checked_with_an_option(tmp_path: Path) -> None:
    url = "postgresql://nobody:s3cr3t-word@127.0.0.1:1/none"
    ran = dial_chat(tmp_path, "doctor", "--only", "files", "--store", url)
    assert ran.returncode == 1
    assert "DC601" in ran.stdout
    assert "s3cr3t-word" not in ran.stdout + ran.stderr
    (tmp_path / "own.db").write_bytes(b"no database at all, but long enough to be read as one" * 40)
    assert "DC601" in dial_chat(tmp_path, "doctor", "--only", "files", "--store", "own.db").stdout


@pytest.mark.parametrize(("keys", "is_written"), [("y\r", True), ("\r", False), ("\x04", False)])
def test_the_prompt_of_a_report_is_answered_in_a_terminal(tmp_path: Path, keys: str, is_written: bool) -> None:
    write_config(tmp_path)
    with terminal(tmp_path, "bug-report", "report.md") as screen:
        screen.until("Write this to report.md? [y]es, [n]o:")
        screen.type(keys)
        screen.leave()
    assert (tmp_path / "report.md").exists() is is_written


def test_a_dumb_terminal_gets_wrapped_findings_without_escape_sequences(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server", autoApprove=["no such tool"])}, ["Hello."])
    with screen(tmp_path, "doctor", columns=60, TERM="dumb") as person:
        assert person.leave() == 0
    assert "Tools in each request" in person.text
    assert person.overrun == []
    assert b"\x1b" not in person.raw
