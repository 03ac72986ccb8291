"""The configuration of docs/policy.md is valid, and its examples give the decisions that the page states."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.inner import (
    APPROVAL_KEYS,
    ApprovalBox,
    ApprovalContext,
    FileChange,
    PolicyRules,
    ProposedCall,
    Settings,
    ShownCall,
    ToolCallRequest,
    ToolSpec,
    build_keys_for_all,
    choose_theme,
    find_reason_to_ask,
    parse,
    trust_read_only_tools,
)

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
RECIPE, CONFIGURATION = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = re.findall(r"^dial-chat policy test (.+?) +# (allow|ask|deny)", PAGE, re.MULTILINE)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    project = tmp_path / "one" / "project"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)
    return parse(CONFIGURATION, path=str(project / "servers.json"), environ={"HOME": str(tmp_path)})


def show_call(
    server: str, tool: str, arguments: Mapping[str, object], *, trusted: bool = False, **claims: bool
) -> ShownCall:
    changes = [FileChange("content", "new file", ("+hello", "+world"))] if "content" in arguments else []
    spec = ToolSpec(tool, "", {}, server, tool, **claims)  # type: ignore[arg-type]  # claims are flags
    return ShownCall(ToolCallRequest("1", tool, arguments), spec, ApprovalContext(server), changes, trusted)


def test_the_questions_of_the_page_are_those_of_the_program() -> None:
    written = {"path": "notes/new.txt", "content": "hello\nworld\n"}
    write = show_call("files", "write_file", written, destructive=True, idempotent=True)
    log = show_call("git", "git_log", {"max_count": 5}, trusted=True, read_only=True)
    send = show_call("mail", "send", {"to": "ada@example.com", "subject": "News"})
    theme = choose_theme("mono", {})
    drawn = [
        ApprovalBox({1: write}, APPROVAL_KEYS, theme),
        ApprovalBox({1: write, 2: log, 3: send}, build_keys_for_all([1, 2, 3]), theme),
    ]
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(box.render(84, 30))) for box in drawn]
    assert re.findall(r"```text\n(╭.*?)\n```", PAGE, re.DOTALL) == shown


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
