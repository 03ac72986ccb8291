"""The configuration of docs/policy.md is valid, and its examples give the decisions that the page states."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.inner import PolicyRules, ProposedCall, Settings, ToolSpec, find_reason_to_ask, parse, trust_read_only_tools

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
RECIPE, CONFIGURATION = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = re.findall(r"^dial-chat policy test (.+?) +# (allow|ask|deny)", PAGE, re.MULTILINE)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    project = tmp_path / "one" / "project"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    return parse(CONFIGURATION, path=str(project / "servers.json"), environ={"HOME": str(tmp_path)})


def test_the_page_has_seven_examples() -> None:
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize(("words", "expected"), EXAMPLES)
def test_an_example_gives_the_decision_that_the_page_states(settings: Settings, words: str, expected: str) -> None:
    name, arguments, *more = shlex.split(words)
    server, tool = name.split("/")
    taint = ("web/fetch",) if more == ["--tainted"] else ()
    call = ProposedCall(ToolSpec(tool, "", {}, server, tool), json.loads(arguments), settings.servers[server], taint)
    verdict = PolicyRules(policy=settings.policy).find_verdict(call)
    is_denied = verdict is not None and verdict.effect == "deny"
    is_asked = verdict is None or find_reason_to_ask(call, verdict) != ""
    assert ("deny" if is_denied else "ask" if is_asked else "allow") == expected


def test_the_command_for_tools_that_read_writes_the_recipe_of_the_page() -> None:
    text = '{"mcpServers": {"files": {"command": "mcp-server-filesystem", "args": ["."]}}}'
    assert json.loads(trust_read_only_tools(text, "files")) == json.loads(RECIPE)


def test_read_only_tools_of_trusted_servers_are_allowed_as_the_page_states(settings: Settings) -> None:
    spec = ToolSpec("read_file", "", {}, "files", "read_file", read_only=True)
    call = ProposedCall(spec, {"path": "src/a.py"}, settings.servers["files"])
    verdict = PolicyRules(policy=settings.policy).find_verdict(call)
    assert verdict is not None
    assert (verdict.effect, verdict.decided_by) == ("allow", "policy rule 3 (servers.json)")
