"""Agents in files: their form, and where a client reads them from."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dial_client import ConfigError, DialClient, Limits, load_config
from dial_client.testing import ScriptedProvider
from tests.inner import parse_agent

pytestmark = pytest.mark.anyio


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    return path


REVIEWER = """\
    ---
    description: Reviews a change.
    model: openai:gpt-5.5
    tools: git/*, agents/linter
    limits:
      maxDepth: 5
      timeout: 30
    ---
    You review changes.
    """


def test_a_file_has_the_description_the_model_the_tools_the_limits_and_the_instructions() -> None:
    agent = parse_agent(dedent(REVIEWER).encode(), Path("reviewer.md"))
    assert (agent.name, agent.description, agent.system) == ("reviewer", "Reviews a change.", "You review changes.")
    assert (agent.model, agent.tools) == ("openai:gpt-5.5", ("git/*", "agents/linter"))
    assert agent.limits == Limits(max_depth=5, timeout=30)


def test_a_file_without_fields_has_all_tools_and_the_model_of_the_caller() -> None:
    agent = parse_agent(b"---\ndescription: Writes.\n---\n", Path("writer.md"))
    assert (agent.model, agent.tools, agent.limits, agent.system) == (None, None, None, "")


def test_a_file_of_another_host_keeps_its_restrictions() -> None:
    text = b"---\nname: tester\ndescription: Tests.\nmodel: sonnet\ntools: Read, mcp__git__diff\n---\n"
    agent = parse_agent(text, Path("any.md"))
    assert (agent.name, agent.model, agent.tools) == ("tester", None, ("Read", "git/diff"))


def test_tools_that_another_host_forbids_are_left_out() -> None:
    text = b"---\nname: tester\ndescription: Tests.\ndisallowedTools: Write, mcp__git__push, mcp__web\n---\n"
    assert parse_agent(text, Path("any.md")).tools == ("*", "!Write", "!git/push", "!web/*")
    text = b"---\ndescription: Tests.\ntools: mcp__git\ndisallowedTools: mcp__git__push\n---\n"
    assert parse_agent(text, Path("any.md")).tools == ("git/*", "!git/push")


def test_other_fields_of_other_hosts_have_no_effect() -> None:
    text = b"---\ndescription: Tests.\nmode: subagent\ncolor: red\nskills: x\n---\n"
    assert parse_agent(text, Path("any.md")).model is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no front matter", "a.md:1: expected front matter"),
        ("---\nmodel: x\n---\n", "a.md:2: description is missing"),
        ("---\ndescription: x\nname: A B\n---\n", "a.md:3: 'A B' is not the name of an agent"),
        ("---\ndescription: x\nlimits:\n  maxDepht: 3\n---\n", "a.md:3: limits: .*unknown limit"),
        ("---\ndescription: x\nlimits: 5\n---\n", "a.md:3: expected limits as keys with texts"),
        ("---\ndescription: &a x\nname: *a\n---\n", "front matter has no anchors and no aliases"),
        ("---\ndescription: &a x\n---\n", "a.md:2: front matter has no anchors and no aliases"),
        ("---\ndescription: x\nlimits: {maxDepth: &a 3}\n---\n", "a.md:3: front matter has no anchors and no aliases"),
        ("---\ndescription: x\ntool: git/*\n---\n", "a.md:3: there is no field 'tool' .*did you mean \"tools\""),
        ("---\ndescription: x\nLimits:\n  maxDepth: 3\n---\n", "a.md:3: there is no field 'Limits'"),
    ],
)
def test_the_error_of_a_file_names_the_line(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_agent(text.encode(), Path("a.md"))


async def test_a_client_reads_agents_from_a_file_and_from_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "team" / "reviewer.md", REVIEWER)
    writer = write(tmp_path / "writer.md", "---\ndescription: Writes.\n---\n")
    async with DialClient(agents=[tmp_path / "team", str(writer)]) as dial:
        assert [tool.name for tool in dial.tools] == ["reviewer", "writer"]


async def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        DialClient(agents=[tmp_path / "none.md"])


async def test_agents_of_a_configuration_belong_to_its_folder_and_are_reloaded(tmp_path: Path) -> None:
    write(tmp_path / "team" / "reviewer.md", REVIEWER)
    write(tmp_path / "servers.json", '{"mcpServers": {}, "agents": ["team"]}')
    settings = load_config(tmp_path / "servers.json")
    assert settings.agents == (tmp_path / "team",)
    async with DialClient.from_config(settings, ScriptedProvider([])) as dial:
        assert [tool.name for tool in dial.tools] == ["reviewer"]
        write(tmp_path / "team" / "writer.md", "---\ndescription: Writes.\n---\n")
        await dial.reload()
        assert [tool.name for tool in dial.tools] == ["reviewer", "writer"]


def test_a_file_says_whether_its_agent_takes_conversations_over(tmp_path: Path) -> None:
    head = "---\ndescription: Teaches.\nhandoff: {}\n---\n"
    assert parse_agent(head.format("true").encode(), tmp_path / "teacher.md").handoff
    assert not parse_agent(head.format("false").encode(), tmp_path / "teacher.md").handoff
    with pytest.raises(ConfigError, match="expected handoff as true or false, found 'maybe'"):
        parse_agent(head.format("maybe").encode(), tmp_path / "teacher.md")
    with pytest.raises(ConfigError, match="no agent can be named 'main'"):
        parse_agent(head.format("true").encode(), tmp_path / "main.md")
