"""A client applies a changed configuration: `DialClient.reload`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dial_client import ApprovalPolicy, ConfigError, DialClient, load_config
from dial_client.extend import ConfigChanges
from dial_client.testing import ScriptedProvider
from tests.support.program import entry

pytestmark = pytest.mark.anyio


def write(folder: Path, reply: str, *, policy: Any = (), limits: Any = None, **servers: Any) -> Path:
    (folder / f"{reply}.json").write_text(json.dumps([reply]))
    path = folder / "servers.json"
    content = {
        "mcpServers": servers,
        "defaultModel": f"scripted:${{workspaceFolder}}/{reply}.json",
        "profiles": {"brief": {"system": f"Say {reply}."}},
        "policy": list(policy),
        "limits": limits or {},
    }
    path.write_text(json.dumps(content))
    return path


async def test_changed_servers_are_restarted_and_others_keep_running(tmp_path: Path) -> None:
    path = write(tmp_path, "one", same=entry("Server"), old=entry("Server"), other=entry("Server"))
    async with DialClient.from_config(path) as dial:
        same = dial.servers["same"]
        write(tmp_path, "one", same=entry("Server"), other=entry("Server", toolTimeout=7), new=entry("Server"))
        changes = await dial.reload()
        assert changes == ConfigChanges(added=("new",), changed=("other",), removed=("old",), unchanged=("same",))
        assert sorted(dial.servers) == ["new", "other", "same"]
        assert dial.servers["same"] == same
        assert all(status.state.value == "ready" for status in dial.servers.values())


async def test_the_model_the_instructions_and_the_rules_are_those_of_the_new_file(tmp_path: Path) -> None:
    path = write(tmp_path, "one")
    approval = ApprovalPolicy(rules=[{"deny": "functions/mine"}])
    async with DialClient.from_config(path, profile="brief", approval=approval) as dial:
        assert (await dial.run("Hi")).text == "one"
        write(tmp_path, "two", policy=[{"deny": "functions/theirs"}], limits={"max_depth": 3})
        changes = await dial.reload()
        assert changes.is_model_changed
        assert (await dial.run("Hi")).text == "two"
        assert (dial.system, dial.limits.max_depth) == ("Say two.", 3)
        assert [rule.tools for rule in dial.approvals.rules.policy] == [("functions/mine",), ("functions/theirs",)]


def test_a_client_for_threads_reloads_too(tmp_path: Path) -> None:
    path = write(tmp_path, "one")
    with DialClient.from_config(path).blocking() as d:
        assert d.run("Hi").text == "one"
        folder = tmp_path / "changed"
        folder.mkdir()
        changes = d.reload(write(folder, "two"))
        assert changes.is_model_changed
        assert d.run("Hi").text == "two"


async def test_what_the_program_chose_stays(tmp_path: Path) -> None:
    path = write(tmp_path, "one")
    async with DialClient.from_config(path, ScriptedProvider(["mine"]), system="Be brief.") as dial:
        changes = await dial.reload(load_config(write(tmp_path, "two"), profile="brief"))
        assert not changes.is_model_changed
        assert ((await dial.run("Hi")).text, dial.system) == ("mine", "Be brief.")


async def test_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "one", same=entry("Server"))
    async with DialClient.from_config(path) as dial:
        path.write_text(path.read_text().replace('"command"', '"comand"'))
        with pytest.raises(ConfigError, match="did you mean"):
            await dial.reload()
        path.write_text(path.read_text().replace('"comand"', '"command"').replace("scripted:", "scriptet:"))
        with pytest.raises(ConfigError, match="scriptet"):
            await dial.reload()
        assert list(dial.servers) == ["same"]
        assert (await dial.run("Hi")).text == "one"


async def test_a_client_without_a_configuration_has_none_to_reload() -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        with pytest.raises(ConfigError, match=r"create it by DialClient\.from_config"):
            await dial.reload()
