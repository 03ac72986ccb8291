"""An option of a command does what its help says, or the command refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program import dial_chat, entry, started, write_config


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["audit", "show", "--follow"], "--follow"),
        (["audit", "verify", "-n", "3"], "--lines"),
        (["audit", "verify", "--server", "x"], "--server"),
        (["audit", "verify", "--tool", "x"], "--tool"),
        (["audit", "verify", "--since", "2d"], "--since"),
        (["audit", "verify", "--conversation", "x"], "--conversation"),
        (["audit", "--head", "0" * 64], "--head"),
        (["conversations", "show", "x", "--search", "word"], "--search"),
        (["conversations", "delete", "x", "--limit", "3"], "--limit"),
        (["conversations", "export", "x", "--cursor", "c"], "--cursor"),
        (["conversations", "list", "--format", "json"], "--format"),
        (["policy", "--tainted"], "--tainted"),
        (["models", "test", "local", "--refresh"], "--refresh"),
        (["config", "get", "defaultModel", "--origin"], "--origin"),
        (["config", "show", "--user"], "--user"),
        (["config", "set", "defaultModel", "x", "--json"], "--json"),
        (["config", "unset", "defaultModel", "--profile", "x"], "--profile"),
        (["config", "set", "defaultModel", "x", "--model", "y"], "--model"),
        (["config", "show", "--model", "y"], "--model"),
        (["config", "get", "defaultModel", "--profile", "x"], "--profile"),
        (["config", "path", "--trust"], "--trust"),
        (["config", "path", "defaultModel"], "'defaultModel'"),
        (["config", "unset", "defaultModel", "x"], "'x'"),
        (["conversations", "list", "x"], "'x'"),
        (["conversations", "delete", "x", "--json"], "--json"),
        (["models", "--tool-format", "xml"], "--tool-format"),
        (["models", "--base-url", "http://127.0.0.1:9", "--config", "x"], "--config"),
        (["doctor", "--only", "files", "--model", "x"], "--model"),
        (["doctor", "--only", "model", "--store", "x"], "--store"),
        (["db", "check", "--config", "x"], "--config"),
        (["db", "check", "--trust"], "--trust"),
        (["credentials", "list", "--config", "x"], "--config"),
        (["credentials", "list", "--trust"], "--trust"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_an_option_without_effect_is_refused(tmp_path: Path, words: list[str], option: str) -> None:
    done = dial_chat(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} has no effect with {words[0]} " in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["trust", "--revoke", "--json"],
        ["trust", "--json"],
        ["servers", "add", "x", "--folder", "--yes", "--", "program"],
        ["servers", "add", "x", "https://x.example/mcp", "--folder", "--set", "A=1"],
    ],
    ids=" ".join,
)
def test_an_option_of_another_form_of_the_command_is_refused(tmp_path: Path, words: list[str]) -> None:
    done = dial_chat(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "belongs to" in done.stderr
    assert not (tmp_path / "servers.json").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["hi", "--no-audit", "--audit-arguments"], "--audit-arguments cannot be combined with --no-audit"),
        (["call", "raw/echo", "--no-audit", "--audit-arguments"], "cannot be combined with --no-audit"),
        (["tools", "--strict", "--trust"], "--strict has no effect with --trust"),
        (["hi", "--strict", "-c", "servers.json"], "--strict has no effect with --config"),
        (["hi", "-q", "-v"], "--quiet cannot be combined with --verbose"),
        (["hi", "--continue", "--resume", "x"], "--continue cannot be combined with --resume"),
        (["hi", "-m", ""], "--model is empty"),
        (["hi", "-m", "scripted:record.jsonl", "-c", "servers.json"], "--config has no effect with a recording"),
        (["hi", "-m", "scripted:record.jsonl", "--fallback-model", "local"], "--fallback-model has no effect"),
        (["policy", "--policy", "record.jsonl"], "this file has no rules"),
        (["audit", "verify", "--folder", "none"], "none: there is no such folder"),
        (["--install-completion", "--show-completion"], "--install-completion cannot be combined with"),
        (["init", "--yes", "--key-variable", "KEY"], "--key-variable has no effect without --base-url"),
        (["init", "--yes", "--base-url", "http://127.0.0.1:9", "--key-variable", "a b"], "is no name of a variable"),
        (["init", "--yes", "--base-url", "ftp://nowhere"], "--base-url is not an address"),
        (["serve", "--token", ""], "--token is empty"),
        (["servers", "add", "server.mcpb", "--allow", "t"], "--allow has no effect"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_contradict_each_other_are_refused(tmp_path: Path, words: list[str], problem: str) -> None:
    (tmp_path / "record.jsonl").write_text('{"recording": 1}\n')
    done = dial_chat(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert not (tmp_path / "servers.json").exists()


def test_a_refused_option_is_an_object_too_where_the_answer_would_be_one(tmp_path: Path) -> None:
    done = dial_chat(tmp_path, "hi", "-q", "-v", "--output", "json")
    assert json.loads(done.stdout)["error"]["type"] == "ConfigError"


def test_a_value_is_printed_as_json_if_that_is_asked_for(tmp_path: Path) -> None:
    write_config(tmp_path, defaultModel="local")
    assert dial_chat(tmp_path, "config", "get", "defaultModel").stdout == "local\n"
    assert dial_chat(tmp_path, "config", "get", "defaultModel", "--json").stdout == '"local"\n'


def test_the_rules_end_with_what_the_mode_does(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": {"command": "x"}})
    last = {
        "ask": "ask everything else",
        "read": "allow everything else that is known to be read-only, ask the rest (--mode read)",
        "plan": "deny what is not known to be read-only, whatever is allowed above (--mode plan)",
        "auto": "allow everything else (--mode auto)",
    }
    for mode, row in last.items():
        assert dial_chat(tmp_path, "policy", "--mode", mode).stdout.splitlines()[-1] == row
    assert json.loads(dial_chat(tmp_path, "policy", "--mode", "plan", "--json").stdout)["mode"] == "plan"


def test_the_time_of_a_tool_is_that_of_the_option(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("NeverAnswers")})
    done = dial_chat(tmp_path, "call", "raw/echo", "--tool-timeout", "0.1")
    assert (done.returncode, done.stdout) == (1, "The tool gave no result within 0.1 seconds.\n")


def test_models_are_found_by_a_part_of_their_names_in_any_case(tmp_path: Path) -> None:
    write_config(tmp_path, models={"Mine": {"base_url": "http://127.0.0.1:9/v1"}})
    for word, found in (("MINE", ["Mine"]), ("zzz", [])):
        listed = json.loads(dial_chat(tmp_path, "models", "list", word, "--json").stdout)
        assert (list(listed["profiles"]), listed["models"]) == (found, [])
    assert "no model has 'zzz' in its name" in dial_chat(tmp_path, "models", "list", "zzz").stderr


def test_the_number_of_entries_holds_for_show_too(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")})
    for _ in range(2):
        assert dial_chat(tmp_path, "call", "raw/echo").returncode == 0
    everything = dial_chat(tmp_path, "audit", "--json").stdout.splitlines()
    assert len(everything) == 4
    assert dial_chat(tmp_path, "audit", "-n", "3", "--json").stdout.splitlines() == everything[-3:]
    assert dial_chat(tmp_path, "audit", "tail", "-n", "1", "--json").stdout.splitlines() == everything[-1:]


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("maxDepth", "50", 'did you mean "limits.maxDepth"?'),
        ("defaultModle", "local", 'did you mean "defaultModel"?'),
        ("colour", "red", "`dial-chat config schema` lists the keys"),
        ("mcpServers.raw.allowTools", '["a"]', "`dial-chat config schema` lists the keys"),
        ("mcpServers.raw.disabledTool", '["a"]', 'did you mean "mcpServers.raw.disabledTools"?'),
        ("limits.maxDeth", "5", 'did you mean "maxDepth"?'),
    ],
)
def test_a_key_without_effect_is_not_set(tmp_path: Path, key: str, value: str, hint: str) -> None:
    write_config(tmp_path, {"raw": {"command": "x"}})
    before = (tmp_path / "servers.json").read_text()
    done = dial_chat(tmp_path, "config", "set", key, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr
    assert (tmp_path / "servers.json").read_text() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("limits.maxDepth", "50"),
        ("mcpServers.raw.auto_approve", '["a"]'),
        ("mcpServers.raw.description", "text"),
        ("mcpServers.raw._why", "text"),
        ("mcpServers.raw.env.ANY_NAME", "text"),
        ("mcpServers.new.command", "x"),
        ("$schema", "https://example.com/schema.json"),
    ],
)
def test_known_keys_comments_and_names_can_be_set(tmp_path: Path, key: str, value: str) -> None:
    write_config(tmp_path, {"raw": {"command": "x"}})
    done = dial_chat(tmp_path, "config", "set", key, value)
    assert (done.returncode, done.stdout.startswith(f"set {key} in ")) == (0, True), done.stderr
    assert value.strip('[]"') in json.dumps(json.loads((tmp_path / "servers.json").read_text()))


def test_a_piped_answer_that_no_call_can_follow_is_streamed(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [{"chunks": ["It is", " noon."], "hang": True}])
    with started(tmp_path, "--no-save", "--timeout", "inf", "What time is it?") as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == "It is", "the end of the answer never comes"


def test_details_of_a_refused_file_are_a_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}')
    done = dial_chat(tmp_path, "tools", "-v")
    assert done.returncode == 2
    assert "you have not trusted it" in done.stderr
    assert "Traceback" not in done.stderr
