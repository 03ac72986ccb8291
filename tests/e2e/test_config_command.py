"""``dial-chat config``: the files of the configuration, their precedence, and changes of values."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.program import dial_chat
from tests.support.pseudo_terminal import terminal

pytestmark = pytest.mark.once
SECRET = "s3cr3t-0123456789"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return the path of the user's own configuration file, which has a server and a model."""
    printed = dial_chat(tmp_path, "config", "path", "--json").stdout
    path = Path(next(row["file"] for row in json.loads(printed)["files"] if row["kind"] == "user"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"mcpServers": {"git": {"command": "mcp-server-git", "disabled": true}}, "defaultModel": "mine"}')
    return path


def write_folder_file(folder: Path) -> Path:
    path = folder / "servers.json"
    path.write_text(
        '{\n  // mine\n  "mcpServers": {\n    "time": {"command": "mcp-server-time", "env": {"API_TOKEN": "'
        + SECRET
        + '"}, "disabled": true}\n  }\n}\n'
    )
    return path


def test_the_files_are_listed_with_their_state_and_a_folders_file_is_used_once_trusted(
    tmp_path: Path, own: Path
) -> None:
    write_folder_file(tmp_path)
    before = dial_chat(tmp_path, "config").stdout
    assert f"{own}  (in use)" in before
    assert "not trusted, not in use" in before
    assert "time" not in dial_chat(tmp_path, "config", "show").stdout
    assert dial_chat(tmp_path, "trust", "servers.json").returncode == 0
    assert "not in use" not in dial_chat(tmp_path, "config", "path").stdout
    assert dial_chat(tmp_path, "config", "show", "mcpServers.time.env").stdout == '{\n  "API_TOKEN": "***"\n}\n'
    shown = dial_chat(tmp_path, "config", "show", "--origin").stdout.splitlines()
    assert 'servers.json:4:14  mcpServers.time.command = "mcp-server-time"' in shown
    assert 'servers.json:4:44  mcpServers.time.env = {"API_TOKEN": "***"}' in shown
    assert f'{own}:1:74  defaultModel = "mine"' in shown
    at_key = dial_chat(tmp_path, "config", "show", "mcpServers.time.env.API_TOKEN", "--origin").stdout
    assert at_key == 'servers.json:4:44  mcpServers.time.env.API_TOKEN = "***"\n'
    below = dial_chat(tmp_path, "config", "show", "mcpServers.time", "--origin").stdout.splitlines()
    assert below == [line for line in shown if "  mcpServers.time." in line] != []
    listed = dial_chat(tmp_path, "servers", "--json").stdout
    assert [server["name"] for server in json.loads(listed)] == ["git", "time"]


def test_a_value_can_be_printed_set_and_removed_and_comments_are_kept(tmp_path: Path, own: Path) -> None:
    path = write_folder_file(tmp_path)
    dial_chat(tmp_path, "trust", "servers.json")
    was = path.read_text()
    done = dial_chat(tmp_path, "config", "set", "defaultModel", "local")
    assert done.stdout == f"set defaultModel in {path} (backup: servers.json.bak)\n"
    assert (tmp_path / "servers.json.bak").read_text() == was
    assert "// mine" in path.read_text()
    assert dial_chat(tmp_path, "config", "get", "defaultModel").stdout == "local\n"
    assert dial_chat(tmp_path, "config", "unset", "defaultModel").returncode == 0
    assert json.loads(path.read_text().replace("// mine", "")) == json.loads(was.replace("// mine", ""))
    assert dial_chat(tmp_path, "config", "get", "defaultModel").stdout == "mine\n"
    dial_chat(tmp_path, "config", "set", "--user", "defaultModel", "openai:x")
    assert '"defaultModel": "openai:x"' in own.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "mcpServers.tmie"], "there is no value at 'mcpServers.tmie' (did you mean \"mcpServers.time\"?)"),
        (["set", "mcpServers.time.startupTimeout", "soon"], "servers.json:4:123: mcpServers.time.startupTimeout"),
        (["set", "defaultModel"], "missing value"),
        (["unset", "models"], "there is no value at 'models'"),
        (["shwo"], 'unknown command: config shwo (did you mean "show"?)'),
    ],
)
def test_an_invalid_change_is_an_error_and_changes_nothing(tmp_path: Path, words: list[str], message: str) -> None:
    path = write_folder_file(tmp_path)
    dial_chat(tmp_path, "trust", "servers.json")
    was = path.read_text()
    done = dial_chat(tmp_path, "config", *words)
    assert (done.returncode, message in done.stderr, path.read_text()) == (2, True, was), done.stderr
    assert not (tmp_path / "servers.json.bak").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudoterminal")
def test_an_editor_that_cannot_be_started_is_an_error_in_one_line(tmp_path: Path) -> None:
    write_folder_file(tmp_path)
    with terminal(tmp_path, "config", "edit", "-c", "servers.json", VISUAL="no-such-editor --wait") as screen:
        screen.until("the editor no-such-editor cannot be started", "set VISUAL or EDITOR to another program")
        assert screen.leave() == 2
        assert "Traceback" not in screen.raw


def test_changing_an_untrusted_file_does_not_make_it_trusted(tmp_path: Path) -> None:
    write_folder_file(tmp_path)
    refused = dial_chat(tmp_path, "config", "set", "defaultModel", "local")
    assert "you have not trusted the servers.json of this folder" in refused.stderr
    done = dial_chat(tmp_path, "config", "set", "defaultModel", "local", "-c", "servers.json")
    assert "You have not trusted this file" in done.stdout
    assert dial_chat(tmp_path, "tools").returncode == 2


def test_a_profile_is_selected_by_an_option_or_an_environment_variable(tmp_path: Path) -> None:
    servers = {name: {"command": f"mcp-server-{name}"} for name in ("time", "git")}
    profiles: dict[str, dict[str, list[str]]] = {"none": {"servers": []}}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers, "profiles": profiles}))
    for words, variables in ((["--profile", "none"], {}), ([], {"DIAL_PROFILE": "none"})):
        done = dial_chat(tmp_path, "servers", "--trust", "--json", *words, **variables)
        assert [server["state"] for server in json.loads(done.stdout)] == ["disabled", "disabled"], done.stderr
    wrong = dial_chat(tmp_path, "servers", "--trust", "--profile", "nnoe")
    assert (wrong.returncode, 'did you mean "none"' in wrong.stderr) == (2, True)


def test_the_schema_is_printed(tmp_path: Path) -> None:
    assert json.loads(dial_chat(tmp_path, "config", "schema").stdout)["title"] == "servers.json"


def test_without_a_terminal_the_editor_is_not_the_problem_that_is_named(tmp_path: Path) -> None:
    edited = dial_chat(tmp_path, "config", "edit", EDITOR="vi")
    assert (edited.returncode, "there is no terminal for the editor" in edited.stderr) == (2, True)


@pytest.mark.parametrize("command", ["models", "policy", "conversations"])
def test_an_unknown_action_is_named(tmp_path: Path, command: str) -> None:
    ran = dial_chat(tmp_path, command, "tset", "x")
    assert (ran.returncode, "unknown action 'tset'" in ran.stderr) == (2, True), ran.stderr
