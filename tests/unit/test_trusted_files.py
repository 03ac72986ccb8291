"""Configuration files of a folder: a file that the user has not trusted has no effect, and is not changed."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from dial_client import DialClient
from dial_client.testing import ScriptedProvider
from tests.inner import (
    ConfigChoice,
    ConfigError,
    ConfigFile,
    EnvFiles,
    Options,
    Subject,
    apply_configuration,
    check_programs,
    combine,
    find_file,
    find_files,
    find_holder,
    list_written_values,
    mask,
    parse,
    read_found,
    trust_now,
)
from tests.inner import config_editor_find_problem as find_problem

WITH_VARIABLES = '{"mcpServers": {"a": {"command": "a", "envFile": ".env"}}}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; the data and configuration folders of the user are temporary folders beside it."""
    for kind in ("data", "config"):
        monkeypatch.setattr(f"platformdirs.user_{kind}_dir", lambda name, kind=kind: str(tmp_path / kind / name))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def test_a_server_is_left_out_after_its_env_file_changed(folder: Path) -> None:
    (folder / "servers.json").write_text(WITH_VARIABLES)
    (folder / ".env").write_text("A=1\n")
    trust_now(read_found(Path("servers.json")), EnvFiles())
    assert combine(find_files(None).files).servers["a"].enabled
    (folder / ".env").write_text("PATH=/tmp/theirs\n")
    assert not combine(find_files(None).files).servers["a"].enabled


def test_a_file_that_is_no_configuration_any_more_is_left_out_as_a_whole(folder: Path) -> None:
    (folder / "servers.json").write_text(WITH_VARIABLES)
    trust_now(read_found(Path("servers.json")), EnvFiles())
    (folder / "servers.json").write_text(WITH_VARIABLES[:-1])
    in_use = find_files(None)
    assert (in_use.files, in_use.untrusted) == ([], Path("servers.json"))


def test_doctor_expands_no_variable_of_an_untrusted_file() -> None:
    text = '{"models": {"m": {"model": "openai:x", "baseURL": "${KEY}"}}, "defaultModel": "${KEY}", "policy": 5}'
    file = ConfigFile(text, "servers.json")
    reading = Subject(untrusted=(file,), environ={"KEY": "sk-live-1"}).readings[0]
    assert (reading.models, reading.default_model, reading.findings) == ({}, None, [])


@pytest.mark.anyio
async def test_a_fix_writes_no_value_of_a_variable() -> None:
    text = '{"mcpServers": {"a": {"command": "missing --fast", "args": ["--key", "${KEY}"]}}}'
    theirs = ConfigFile('{"mcpServers": {"a": {"command": "theirs"}}}', "theirs.json")
    environ = {"KEY": "sk-live-1", "PATH": ""}
    (finding,) = check_programs(Subject((ConfigFile(text, "mine.json"),), untrusted=(theirs,), environ=environ))
    assert finding.path == "mine.json"
    assert finding.fix is not None
    assert finding.fix.edit is not None
    fixed = finding.fix.edit(text)
    assert "sk-live-1" not in fixed
    entry = parse(fixed, environ={"KEY": "k"}).servers["a"]
    assert (entry.command, entry.args) == ("missing", ("--fast", "--key", "k"))


@pytest.mark.anyio
async def test_rules_of_a_changed_configuration_apply_before_its_servers_start() -> None:
    after = parse('{"policy": [{"deny": "*"}], "mcpServers": {"a": {"command": "never-started"}}}')
    async with DialClient(ScriptedProvider(["Done."])) as dial:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await apply_configuration(dial, Options(model="scripted"), parse("{}"), after, lambda *_: None)
        assert scope.cancelled_caught
        assert list(dial.servers) == []
        assert dial.approvals.rules.policy == after.policy


def test_a_configuration_is_checked_without_reading_its_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe no text")
    assert find_problem(WITH_VARIABLES, tmp_path / "servers.json") is None


def test_no_command_changes_an_untrusted_file(folder: Path) -> None:
    (folder / "servers.json").write_text(WITH_VARIABLES)
    with pytest.raises(ConfigError, match="not trusted"):
        find_holder("a", ConfigChoice())
    with pytest.raises(ConfigError, match="not trusted"):
        find_file(ConfigChoice())
    assert find_holder("a", ConfigChoice(folder=True)).path == Path("servers.json")


def test_a_report_masks_each_secret_of_the_environment_and_of_models() -> None:
    environ = {"DATABASE_URL": "postgres://me:hunter2x@db.test/x", "GITHUB_PAT": "abcd1234ef", "PWD": "/srv/1a2b3c4d"}
    models = '{"models": {"m": {"model": "openai:x", "baseURL": "https://me:secret99@m.test/v1"}}}'
    subject = Subject((ConfigFile(models, "servers.json"),), environ=environ)
    text = mask(subject, "hunter2x abcd1234ef secret99 /srv/1a2b3c4d")
    assert text == "[secret of the environment] [secret of the environment] [secret of the environment] /srv/1a2b3c4d"


def test_numbers_lists_and_encoded_secrets_are_hidden_where_values_are_shown() -> None:
    text = """{"mcpServers": {"a": {"command": "a", "timeout": 60000, "env": {
        "API_TOKEN": 9876543210, "tokens": "x", "URL": "https://me:p%40ss-word@db.test/x"}, "secret": ["plain"]}}}"""
    values = {value.keys[-1]: value.value for value in list_written_values([ConfigFile(text, "servers.json")])}
    assert values["env"] == {"API_TOKEN": "***", "tokens": "x", "URL": "https://me:***@db.test/x"}
    assert (values["secret"], values["timeout"]) == (["***"], 60000)
