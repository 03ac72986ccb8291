"""Trust in configuration files: for one file at one location, until the file changes."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.inner import CONFIG_TRUST_MAX_BYTES as MAX_BYTES
from tests.inner import (
    ConfigError,
    EnvFiles,
    TrustedFile,
    TrustStore,
    build_change_rows,
    configuration,
    count_cells,
    is_user_config,
    read_found,
    resolve_location,
    review_file,
    trust_now,
    trust_summary,
)
from tests.support.program import dial_chat, entry, write_config

SERVER: dict[str, Any] = {"command": "serve", "args": ["--port", "1"], "env": {"A": "1"}, "cwd": "sub"}
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="links and modes are those of POSIX")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a working folder, and a user's data folder outside it."""
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name: str(tmp_path / "data" / name))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def written(folder: Path, *, name: str = "servers.json", **changes: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"mcpServers": {"s": {**SERVER, **changes}}}, indent=1))
    return path


def trusted(path: Path) -> TrustedFile:
    return trust_now(read_found(path), EnvFiles())


def changes(path: Path) -> list[str] | None:
    """Return the rows that ask about the changes of a file; None if it needs trust as a whole."""
    review = review_file(path)
    return None if review.changes is None else [" ".join(row) for row in build_change_rows(review.asked)]


def test_trust_applies_to_the_location_and_the_content_of_a_file(folder: Path) -> None:
    path = written(folder)
    assert changes(path) is None
    trusted(path)
    assert changes(path) == []
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    assert changes(written(elsewhere)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"command": "other"},
        {"args": ["--port", "2"]},
        {"env": {"A": "2"}},
        {"cwd": "other"},
        {"autoApprove": ["*"]},
        {"url": "http://127.0.0.1:1", "command": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_change_is_shown_as_a_difference(folder: Path, change: dict[str, Any]) -> None:
    path = written(folder)
    trusted(path)
    written(folder, **change)
    shown = changes(path)
    assert shown
    key = next(iter(change))
    assert any(line.startswith(f"+ server s: {key} ") for line in shown)
    written(folder)
    assert changes(path) == []


def test_a_new_key_is_shown_with_its_value(folder: Path) -> None:
    path = written(folder)
    trusted(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "limits": {"maxTools": 100}, "inputs": ["x"]}))
    assert changes(path) == ['+ limits "maxTools" = 100', '+ inputs "x"']


def test_trust_includes_the_environment_file(folder: Path) -> None:
    path = written(folder, envFile=".env")
    (folder / ".env").write_text("A=1\n")
    trusted(path)
    assert changes(path) == []
    for text, word in (("A=2\n", "has changed"), (None, "is missing")):
        (folder / ".env").unlink() if text is None else (folder / ".env").write_text(text)
        assert [word in line and ".env" in line for line in changes(path) or []] == [True]


def test_an_environment_file_that_is_added_later_is_not_trusted(folder: Path) -> None:
    path = written(folder, envFile=".env")
    trusted(path)
    (folder / ".env").write_text("LD_PRELOAD=./evil.so\n")
    assert ["is new" in line for line in changes(path) or []] == [True]


def test_an_environment_file_is_read_once(folder: Path) -> None:
    path = written(folder, envFile=".env")
    (folder / ".env").write_text("A=shown\n")
    found, env_files = read_found(path), EnvFiles()
    list(trust_summary.build_rows(configuration.outline(found.data), env_files, folder))
    (folder / ".env").write_text("A=changed\n")
    path.write_text("{}")
    settings = configuration.parse(found.data, path=str(path), read=env_files.read)
    assert settings.servers["s"].env == {"A": "1"}
    assert env_files.read(folder / ".env") == b"A=shown\n"


@posix_only
@pytest.mark.parametrize("named", ["../outside.env", "${HOME}/x.env", "~/x.env", "linked.env", "/etc/hosts", "pipe"])
def test_before_consent_only_environment_files_inside_the_folder_are_read(folder: Path, named: str) -> None:
    (folder.parent / "outside.env").write_text("A=1\n")
    (folder / "linked.env").symlink_to(folder.parent / "outside.env")
    os.mkfifo(folder / "pipe")
    assert EnvFiles().peek(named, folder) is None
    (folder / "inside.env").write_text("A=1\n")
    assert EnvFiles().peek("inside.env", folder) == b"A=1\n"


@posix_only
def test_a_symbolic_link_with_a_changed_target_is_not_trusted(folder: Path) -> None:
    for name in ("one.json", "two.json"):
        written(folder, name=name)
    path = folder / "servers.json"
    path.symlink_to("one.json")
    trusted(path)
    assert changes(path) == []
    path.unlink()
    path.symlink_to("two.json")
    assert changes(path) is None


@posix_only
def test_a_symbolic_link_to_the_users_own_file_is_not_the_users_own_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = folder.parent / "own"
    own.mkdir()
    monkeypatch.setattr("platformdirs.user_config_dir", lambda *_: str(own))
    (folder / "servers.json").symlink_to(written(own))
    assert not is_user_config(folder / "servers.json")  # its relative paths start at this folder
    assert is_user_config(own / "servers.json")
    (folder / "link").symlink_to(own)
    assert resolve_location(folder / "link" / "servers.json") == resolve_location(own / "servers.json")


def test_the_environment_file_of_a_changed_server_is_not_read(folder: Path) -> None:
    path = written(folder)
    trusted(path)
    (folder / "other.env").write_text("A=1\n")
    written(folder, envFile="${workspaceFolder}/other.env")
    review = review_file(path)
    (folder / "other.env").unlink()
    assert review.env_files.read(folder / "other.env") is None


@posix_only
def test_special_and_too_large_files_are_not_read(folder: Path) -> None:
    os.mkfifo(folder / "servers.json")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_found(folder / "servers.json")
    (folder / "large.json").write_text(" " * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="must not exceed"):
        read_found(folder / "large.json")


@posix_only
def test_the_trust_store_has_private_permissions(folder: Path) -> None:
    trusted(written(folder))
    [file] = (folder.parent / "data").rglob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.stat().st_mode & 0o777 for path in (file.parent, file.parent.parent)] == [0o700, 0o700]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda _: "[" * 100_000,
        lambda _: "null",
        lambda text: text.replace('"form": 1', '"form": 2'),
        lambda text: text.replace('"env_files": {}', '"env_files": []'),
        lambda text: text.replace('"digest": "', '"digest": 1, "more": "'),
        lambda text: text.replace("servers.json", "others.json"),
    ],
)
def test_damaged_entries_of_the_store_are_not_trusted(folder: Path, damage: Any) -> None:
    path = written(folder)
    trusted(path)
    [file] = (folder.parent / "data").rglob("*.json")
    before = file.read_text()
    assert damage(before) != before
    file.write_text(damage(before))
    assert changes(path) is None
    assert TrustStore().list() == []
    trusted(path)
    assert changes(path) == []


def test_concurrent_changes_of_the_store_lose_nothing(folder: Path) -> None:
    paths = []
    for number in range(4):
        (folder / str(number)).mkdir()
        paths.append(written(folder / str(number), command=str(number)))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(trusted, paths * 25))
    assert [changes(path) for path in paths] == [[], [], [], []]
    assert len(TrustStore().list()) == len(list((folder.parent / "data").rglob("*.*"))) == 4


def test_a_renamed_file_of_the_store_is_ignored(folder: Path) -> None:
    trusted(written(folder))
    [file] = (folder.parent / "data").rglob("*.json")
    file.rename(file.with_name("0" * 32 + ".json"))
    assert TrustStore().list() == []


def test_trust_is_given_listed_and_revoked_without_a_terminal(tmp_path: Path) -> None:
    path = written(tmp_path, command="no-such-program-anywhere", args=["x" * 400])
    assert dial_chat(tmp_path, "tools").returncode == 2
    done = dial_chat(tmp_path, "trust", "servers.json")
    assert done.returncode == 0
    assert "x" * 400 in done.stdout
    assert f"trusted, until it changes: {path}" in done.stdout
    assert dial_chat(tmp_path, "tools").returncode == 0
    listed = json.loads(dial_chat(tmp_path, "trust", "--list", "--json").stdout)
    assert [(row["path"], row["state"]) for row in listed] == [(str(path), "unchanged")]
    written(tmp_path, command="another")
    assert "changed" in dial_chat(tmp_path, "trust", "--list").stdout
    changed = dial_chat(tmp_path, "tools", "--strict")
    assert changed.returncode == 2
    assert "has changed since you trusted it; not used: server s: command; server s: args" in changed.stderr
    assert dial_chat(tmp_path, "trust", ".").returncode == 0
    assert f"not trusted any more: {path}" in dial_chat(tmp_path, "trust", "--revoke").stdout
    assert dial_chat(tmp_path, "tools").returncode == 2


def test_without_a_terminal_a_changed_server_is_left_out_and_unchanged_servers_run(tmp_path: Path) -> None:
    servers = {"same": entry("Server"), "changed": entry("Server", toolTimeout=10)}
    write_config(tmp_path, servers)
    write = (tmp_path / "servers.json").write_text
    servers["changed"]["toolTimeout"] = 20
    servers["same"]["disabledTools"] = ["nothing"]
    write(json.dumps({"mcpServers": servers}))
    harmless = dial_chat(tmp_path, "tools", "--json")
    note = "used without a question: server same: disabledTools; server changed: toolTimeout; startupPatience is gone"
    assert (harmless.returncode, note in harmless.stderr) == (0, True)
    assert {tool["server"] for tool in json.loads(harmless.stdout)} == {"same", "changed"}
    assert note not in dial_chat(tmp_path, "servers").stderr  # told once
    servers["changed"]["env"] = {"LD_PRELOAD": "evil.so"}
    write(json.dumps({"mcpServers": servers, "policy": [{"allow": "*"}]}))
    done = dial_chat(tmp_path, "tools", "--json")
    assert done.returncode == 0
    assert "not used: server changed: env; policy is new; `dial-chat trust` shows these changes and asks" in done.stderr
    assert {tool["server"] for tool in json.loads(done.stdout)} == {"same"}
    assert dial_chat(tmp_path, "policy", "list").stdout.startswith("ask everything else")
    strict = dial_chat(tmp_path, "tools", "--json", "--strict")
    assert (strict.returncode, strict.stdout) == (2, "")
    assert "in use, but for changes: server changed: env" in dial_chat(tmp_path, "config").stdout
    assert "DC114: changes since you trusted the file are not used" in dial_chat(tmp_path, "doctor").stdout


@pytest.mark.parametrize(
    "words", [["trust", "--list", "x"], ["trust", "--list", "--revoke"], ["trust", "missing.json"], ["trust"]]
)
def test_an_invalid_use_of_the_trust_command_is_an_error(tmp_path: Path, words: list[str]) -> None:
    done = dial_chat(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_message_names_the_file_in_use(tmp_path: Path) -> None:
    path = written(tmp_path, command="no-such-program-anywhere")
    done = dial_chat(tmp_path, "servers", "--trust", "--json")
    assert [row["config"] for row in json.loads(done.stdout)] == [str(path)]
    assert f"configuration: {path}" in dial_chat(tmp_path, "servers", "-c", "servers.json").stderr
    assert f"configuration: {path}" in dial_chat(tmp_path, "tools", "-v", "--trust").stderr


def test_a_named_file_needs_no_trust(tmp_path: Path) -> None:
    written(tmp_path, command="no-such-program-anywhere")
    assert dial_chat(tmp_path, "tools", "-c", "servers.json").returncode == 0


def summary_of(server: dict[str, Any]) -> str:
    outline = configuration.outline(json.dumps({"mcpServers": {"s": server}}))
    return trust_summary.render_rows(trust_summary.build_rows(outline, EnvFiles(), Path()), None)


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_the_summary_breaks_between_words_and_loses_no_character(columns: int) -> None:
    rows = [
        trust_summary.SummaryRow("  is believed", "when it declares tools read-only, or safe to repeat"),
        trust_summary.SummaryRow("  sends there", "no key from the file; a vendor's own address gets your key for it"),
        trust_summary.SummaryRow("", trust_summary.UNPINNED),
        trust_summary.SummaryRow("  runs", '"a  b   ' + "c" * 300 + " 日本 語 " * 40 + '"'),
    ]
    for row in rows:
        whole = trust_summary.render_rows([row], None)
        first, *further = trust_summary.render_rows([row], columns).split("\n")
        assert all(line.lstrip(" ").startswith("> ") for line in further)
        rest = [line.lstrip(" ").removeprefix("> ") for line in further]
        assert "".join([first, *rest]) == whole
        assert all(count_cells(line) <= columns for line in (first, *further))
        if row is not rows[-1]:
            assert all(line.endswith(" ") for line in [first, *rest][:-1]), (first, further)


@pytest.mark.parametrize(
    ("words", "is_marked"),
    [
        (["npx", "-y", "@scope/server"], True),
        (["/usr/bin/npx", "server@latest"], True),
        (["npx.cmd", "-y", "@scope/server@1.2.3"], False),
        (["uvx", "server"], True),
        (["uvx", "server==1.2"], False),
        (["pipx", "run", "server"], True),
        (["python", "-m", "server"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_program_without_a_pinned_version_is_marked(words: list[str], is_marked: bool) -> None:
    assert ("in its newest version" in summary_of({"command": words[0], "args": words[1:]})) == is_marked


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PYTHONPATH", "PYTHONINSPECT", "NODE_OPTIONS", "BASH_ENV", "DYLD_INSERT_LIBRARIES", "Path"]
)
def test_a_variable_that_changes_what_programs_run_is_marked(name: str) -> None:
    assert f'"{name}" = ***  (!)' in summary_of({"command": "x", "env": {name: "hidden"}})


def test_a_login_shows_its_addresses_and_hides_its_secrets() -> None:
    oauth = {"issuer": "https://stranger.example", "client_secret": "hidden", "privateKey": "${THE_KEY}"}
    text = summary_of({"url": "https://far.example", "oauth": oauth})
    assert '"issuer" = "https://stranger.example"' in text
    assert '"privateKey" = ${THE_KEY}' in text
    assert "hidden" not in text


def test_alternative_spellings_of_keys_and_unknown_keys_are_shown() -> None:
    text = summary_of({"httpUrl": "https://far.example", "always_allow": ["*"], "whatever": {"a": [1]}})
    assert 'connects to            "https://far.example"' in text
    assert 'runs without asking    "*"' in text
    assert '"whatever"             {"a": [1]}' in text
