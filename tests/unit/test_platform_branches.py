"""Branches for Windows and macOS, run with a patched `sys.platform`; docs/platforms.md lists their modules."""

from __future__ import annotations

import json
import re
import signal
import sys
import zipfile
from pathlib import Path

import anyio
import pytest
from prompt_toolkit import Application
from prompt_toolkit.input import DummyInput, create_pipe_input
from prompt_toolkit.input.posix_pipe import PosixPipeInput
from prompt_toolkit.output import DummyOutput

from dial_client.extend import MemoryLogins
from tests.inner import (
    ConfigError,
    ConfigFile,
    SecretMask,
    ServerSettings,
    Subject,
    Transport,
    bundles,
    check_permissions,
    create_private_file,
    file_mentions,
    grants,
    list_transports,
    oauth_login,
    output_commands,
    parse,
    process_runner,
    propose_files,
    resume_drawing,
    shell_command,
    shell_completion,
    tty,
    user_programs,
    with_decoded_keys,
)

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.once,
    pytest.mark.skipif(sys.platform == "win32", reason="on Windows all other tests run these branches"),
]


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


def test_every_module_that_checks_the_platform_is_in_the_table_of_platforms() -> None:
    check = re.compile(r"sys\.platform|os\.name\b|platform\.system\(")
    checking = {
        path.relative_to(ROOT / "dial_client").as_posix()
        for path in (ROOT / "dial_client").rglob("*.py")
        if check.search(path.read_text(encoding="utf-8"))
    }
    table = re.findall(
        r"^\| `([\w/]+\.py)` \|", (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert table == sorted(checking)


@pytest.mark.usefixtures("windows")
def test_a_shell_command_runs_in_the_shell_of_comspec() -> None:
    assert shell_command.build_shell_arguments("dir", {"COMSPEC": r"C:\Windows\cmd.exe"}) == [
        r"C:\Windows\cmd.exe", "/d", "/c", "dir",
    ]  # fmt: skip


@pytest.mark.usefixtures("windows")
def test_a_backslash_in_the_commands_of_editor_and_pager_separates_folders() -> None:
    command = r'"C:\Program Files\vim\vim.exe" -n'
    assert user_programs.find_editor({"EDITOR": command}) == [r"C:\Program Files\vim\vim.exe", "-n"]
    assert user_programs.find_pager({"PAGER": command}) == [r"C:\Program Files\vim\vim.exe", "-n"]


@pytest.mark.usefixtures("windows")
def test_a_backslash_in_a_path_is_no_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    assert [proposal.text for proposal in propose_files("a")] == ["a.txt"]
    assert propose_files(r"a\ b") == []


@pytest.mark.usefixtures("windows")
def test_a_dropped_file_is_mentioned_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.touch()
    assert file_mentions.build_mentions(f'"{path}"') == f"@{path} "
    assert file_mentions.build_mentions(path.as_uri()) == f"@{path} "


@pytest.mark.usefixtures("windows")
def test_an_attached_file_is_read_on_windows(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("noon")
    assert file_mentions._read(tmp_path / "notes.txt") == b"noon"


@pytest.mark.usefixtures("windows")
def test_the_console_moves_the_cursor_without_the_variable_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM", raising=False)
    assert tty.can_move_cursor()


@pytest.mark.usefixtures("windows")
def test_waiting_for_enter_during_other_work_is_not_possible_on_windows() -> None:
    assert not tty.can_wait_for_enter()


@pytest.mark.usefixtures("windows")
def test_powershell_is_the_default_shell_on_windows() -> None:
    assert shell_completion.choose_shell(None, {}) == "powershell"


async def test_no_signal_is_awaited_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with anyio.move_on_after(60) as scope:
        await process_runner.Interrupts().listen()
    assert not scope.cancelled_caught


@pytest.mark.usefixtures("windows")
def test_the_clipboard_of_windows_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert output_commands.find_programs({}) == [["clip.exe"]]


@pytest.mark.usefixtures("macos")
def test_the_clipboard_of_macos_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert output_commands.find_programs({}) == [["pbcopy"]]


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_browser_is_expected_without_the_variable_display(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not oauth_login._has_browser()
    monkeypatch.setattr(sys, "platform", system)
    assert oauth_login._has_browser()


@pytest.mark.usefixtures("windows")
def test_file_modes_are_not_changed_on_windows(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    path.touch(0o644)
    assert create_private_file(path).stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("windows")
def test_a_file_without_owner_and_mode_counts_as_a_file_of_the_user(tmp_path: Path) -> None:
    assert grants._is_owned_by_user(tmp_path / "missing.json")


@pytest.mark.usefixtures("windows")
def test_the_home_folder_is_that_of_userprofile_on_windows() -> None:
    text = '{"mcpServers": {"it": {"command": "${userHome}/run"}}}'
    file = parse(text, environ={"USERPROFILE": "C:/Users/ada", "HOME": "/home/ada"})
    assert file.servers["it"].command == "C:/Users/ada/run"


async def test_the_modes_of_files_with_secrets_are_not_checked_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    file = tmp_path / "servers.json"
    text = '{"mcpServers": {"it": {"command": "x", "env": {"API_KEY": "sk-live-4f9a8b7c6d5e4f3a2b1c"}}}}'
    file.write_text(text)
    file.chmod(0o644)
    subject = Subject((ConfigFile(text, str(file)),), environ={})
    assert [*check_permissions(subject)] == []


@pytest.mark.usefixtures("windows")
def test_the_process_of_a_server_is_started_by_the_sdk_on_windows() -> None:
    # On other systems the process starts now, which fails: there is no such program.
    (transport,) = list_transports(
        ServerSettings("it", Transport.STDIO, command="no-such-program"), None, MemoryLogins(), SecretMask()
    )
    assert transport.stderr == ()


async def test_no_handler_for_sigcont_is_installed_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    application: Application[None] = Application(input=DummyInput(), output=DummyOutput())
    monkeypatch.setattr(sys, "platform", "win32")
    before = signal.getsignal(signal.SIGCONT)
    with resume_drawing(application):
        assert signal.getsignal(signal.SIGCONT) is before


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_bundle_runs_only_on_the_platforms_it_names(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"command": "server/tool", "platform_overrides": {system: {"args": ["--here"]}}}
    manifest = {"name": "it", "server": {"mcp_config": config}, "compatibility": {"platforms": [system]}}
    path = tmp_path / "it.mcpb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("server/tool.exe", "x")
    monkeypatch.setattr(sys, "platform", "freebsd")
    with pytest.raises(ConfigError, match=f"the bundle runs on {system}, not on freebsd"):
        bundles.read_bundle(path)
    monkeypatch.setattr(sys, "platform", system)
    entry = bundles.build_bundle_entry(bundles.read_bundle(path), tmp_path, {})
    assert entry["args"] == ["--here"]
    assert entry["command"] == (str(tmp_path / "server" / "tool.exe") if system == "win32" else "server/tool")


def test_the_key_parser_is_not_replaced_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    with create_pipe_input() as keyboard:
        assert isinstance(keyboard, PosixPipeInput)
        parser = keyboard.vt100_parser
        monkeypatch.setattr(sys, "platform", "win32")
        with_decoded_keys(keyboard)
        assert keyboard.vt100_parser is parser
