"""`dial-chat init` in a folder without configuration."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.program import dial_chat
from tests.support.screens import screen

pytestmark = pytest.mark.once


def test_a_first_configuration_is_written_trusted_and_works(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    written = dial_chat(tmp_path, "init")
    assert written.returncode == 0, written.stderr
    assert 'Try: dial-chat "What time is it in Tokyo?"' in written.stdout
    assert '"local"' not in (tmp_path / "servers.json").read_text(), "490 MB are not downloaded unasked"
    used = dial_chat(tmp_path, "call", "get_current_time", '{"timezone": "Asia/Tokyo"}')
    assert used.returncode == 0 and '"timezone": "Asia/Tokyo"' in used.stdout, used.stderr
    again = dial_chat(tmp_path, "init")
    assert again.returncode == 2 and "there is a configuration already" in again.stderr


def test_options_replace_the_prompts(tmp_path: Path) -> None:
    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    linear = {"url": "https://linear.example/mcp"}
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"linear": linear}}))
    words = ("init", "--yes", "--user", "--model", "ollama:qwen3", "--server", "time", "--server", "linear")
    assert dial_chat(tmp_path, *words).returncode == 0
    shown = json.loads(dial_chat(tmp_path, "servers", "export", "--to", "cursor").stdout)
    assert shown["mcpServers"]["linear"] == linear
    assert not (tmp_path / "servers.json").exists()
    both = dial_chat(tmp_path, "init", "--user", "--folder")
    assert (both.returncode, "different files" in both.stderr) == (2, True)
    wrong = dial_chat(tmp_path, "init", "--model", "local", "--server", "tiem")
    assert (wrong.returncode, 'did you mean "time"' in wrong.stderr) == (2, True)


def test_three_prompts_write_a_file_that_is_tested_with_one_question(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]}
    (tmp_path / "replies.json").write_text(json.dumps([call, "It is noon in Tokyo."]))
    with screen(tmp_path, "init", columns=120) as shown:
        shown.until("the name of any model")
        shown.type("scriptd:replies.json\r")
        shown.until("the name of any model", 2)
        shown.type("scripted:replies.json\r")
        shown.until("or Enter for time")
        shown.type("9\r")
        shown.until("Please name numbers")
        shown.until("or Enter for time", 2)
        shown.type("\r")
        shown.until("or Enter for this folder")
        shown.type("1\r")
        shown.until("time: 2 tools")
        shown.until("now? [Y]es, [n]o:")
        shown.type("\r")
        shown.until("It is noon in Tokyo.")
        assert shown.leave() == 0
    text = (tmp_path / "servers.json").read_text()
    assert '"defaultModel": "scripted:replies.json"' in text and "// The current time" in text


def test_leaving_at_a_prompt_writes_nothing(tmp_path: Path) -> None:
    with screen(tmp_path, "init", "--model", "local") as shown:
        shown.until("Which servers?")
        shown.until("Numbers such as")
        shown.type("\x04")
        shown.until("Nothing was written.")
        assert shown.leave() == 2
    assert not (tmp_path / "servers.json").exists()


def test_servers_of_other_hosts_in_the_folder_are_named_and_not_used(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    entry = {"command": "touch", "args": ["ran"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": entry, "b": entry}}))
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"c": entry}}))
    (tmp_path / "crush.json").write_text("{")
    commands = (("servers",), ("doctor",), ("init", "--yes"))
    for ran in [dial_chat(tmp_path, *words) for words in commands]:
        printed = " ".join((ran.stdout + ran.stderr).split())
        assert ".mcp.json has 2 servers (dial-chat servers import claude-code asks" in printed
        assert "mcp.json has 1 server (dial-chat servers import cursor asks" in printed
    assert not (tmp_path / "ran").exists()
    assert "ran" not in (tmp_path / "servers.json").read_text()


def test_a_conversation_with_the_users_own_servers_names_those_of_other_hosts_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["Hello."]')
    words = ("init", "--yes", "--user", "--model", f"scripted:{tmp_path / 'replies.json'}", "--server", "time")
    assert dial_chat(tmp_path, *words).returncode == 0
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "touch", "args": ["ran"]}}}))
    with screen(tmp_path, columns=150) as shown:
        shown.until(".mcp.json has 1 server (dial-chat servers import claude-code asks before it adds them)")
        shown.until("1 server ready")
        shown.type("\x04")
        assert shown.leave() == 0
    assert not (tmp_path / "ran").exists()
