"""Agents in the terminal: `dial-chat agents`, trust in those of a folder, and what is shown of their calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program import config_folder, dial_chat, python_server, write_config
from tests.support.servers.launch import HERE

pytestmark = pytest.mark.once
ASK = {"tool_calls": [{"name": "reviewer", "arguments": {"task": "Review it."}}]}


def write_agent(folder: Path, name: str, description: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.md"
    file.write_text(f"---\ndescription: {description}\n---\nBe strict.\n", encoding="utf-8")
    return file


def names(folder: Path) -> list[str]:
    return [agent["name"] for agent in json.loads(dial_chat(folder, "agents", "--json").stdout)]


def test_an_agent_of_a_folder_is_used_once_it_is_trusted_and_until_it_changes(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [ASK, "It is fine.", "Done."])
    file = write_agent(tmp_path / ".claude" / "agents", "reviewer", "Reviews a change.")
    untrusted = dial_chat(tmp_path, "agents", "--json")
    assert untrusted.stdout.strip() == "[]"
    assert f"not used, because you have not trusted it: {Path('.claude/agents/reviewer.md')}" in untrusted.stderr
    assert dial_chat(tmp_path, "trust", str(file)).returncode == 0
    assert dial_chat(tmp_path, "agents").stdout == "reviewer  Reviews a change.\n"
    ran = dial_chat(tmp_path, "Go on", "--output", "json")
    assert json.loads(ran.stdout)["text"] == "Done."
    assert "It is fine." in ran.stdout
    file.write_text("---\ndescription: Sends everything.\n---\n", encoding="utf-8")
    assert names(tmp_path) == []


def test_agents_of_the_user_come_first_and_need_no_trust(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    write_agent(config_folder(tmp_path) / "agents", "reviewer", "Mine.")
    write_agent(tmp_path / ".dial" / "agents", "reviewer", "Of the folder.")
    listed = dial_chat(tmp_path, "agents", "--json", "--trust")
    assert [agent["description"] for agent in json.loads(listed.stdout)] == ["Mine."]
    assert f"there is an agent reviewer already, in {config_folder(tmp_path) / 'agents' / 'reviewer.md'}" in " ".join(
        listed.stderr.split()
    )


def test_an_agent_that_is_wrong_is_left_out_with_the_line(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    folder = config_folder(tmp_path) / "agents"
    write_agent(folder, "writer", "Writes.")
    (folder / "wrong.md").write_text("---\nmodel: x\n---\n", encoding="utf-8")
    listed = dial_chat(tmp_path, "agents")
    assert listed.stdout == "writer  Writes.\n"
    assert "wrong.md:2: description is missing" in listed.stderr


def test_the_events_of_a_call_name_the_calls_of_its_agent(tmp_path: Path) -> None:
    echo = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}
    write_config(tmp_path, {"raw": python_server(HERE / "raw.py")}, [ASK, echo, "It is fine.", "Done."])
    write_agent(config_folder(tmp_path) / "agents", "reviewer", "Reviews a change.")
    ran = dial_chat(tmp_path, "Go on", "--allow", "raw/*", "--output", "jsonl")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    progress = [event["message"] for event in events if event["type"] == "tool_call_progress"]
    assert progress == ["main > reviewer > raw.echo"]
    assert events[-1]["turn"]["text"] == "Done."


def test_a_conversation_with_an_agent_has_its_instructions_and_its_tools(tmp_path: Path) -> None:
    echo = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}
    write_config(tmp_path, {"raw": python_server(HERE / "raw.py")}, [echo, "Done."])
    file = write_agent(config_folder(tmp_path) / "agents", "reviewer", "Reviews a change.\ntools: other/*")
    ran = dial_chat(tmp_path, "Go on", "--agent", "reviewer", "--output", "json", "--allow", "raw/*")
    assert "There is no tool 'echo'" in ran.stdout
    file.write_text("---\ndescription: Reviews.\ntools: raw/*\n---\n", encoding="utf-8")
    ran = dial_chat(tmp_path, "Go on", "--agent", "reviewer", "--output", "json", "--allow", "raw/*")
    assert "There is no tool" not in ran.stdout
    assert (json.loads(ran.stdout)["tool_calls"][0]["server"], ran.returncode) == ("raw", 0)


def test_an_unknown_agent_is_an_error_of_use(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    ran = dial_chat(tmp_path, "Go on", "--agent", "none")
    assert ran.returncode == 2
    assert "there is no agent 'none' (there is none)" in ran.stderr
    write_agent(config_folder(tmp_path) / "agents", "reviewer", "Reviews a change.")
    ran = dial_chat(tmp_path, "Go on", "--agent", "reviewr")
    assert "there is no agent 'reviewr' (did you mean \"reviewer\"?)" in ran.stderr


def test_without_agents_the_list_says_where_they_are_written(tmp_path: Path) -> None:
    listed = dial_chat(tmp_path, "agents")
    assert (listed.stdout, len(listed.stderr.splitlines())) == ("", 1), "nothing about servers that are not needed"
    assert "there are no agents" in listed.stderr and str(Path(".dial/agents")) in listed.stderr


def test_a_conversation_with_an_agent_needs_no_other_model_than_that_of_the_agent(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["Fine."]), encoding="utf-8")
    write_config(tmp_path)
    write_agent(config_folder(tmp_path) / "agents", "reviewer", f"Reviews.\nmodel: scripted:{script}")
    ran = dial_chat(tmp_path, "Go on", "--agent", "reviewer")
    assert (ran.stdout, ran.returncode) == ("Fine.\n", 0)


def test_a_message_that_names_an_agent_goes_to_it_also_if_a_file_has_a_similar_name(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["It is fine.", "Done."])
    write_agent(config_folder(tmp_path) / "agents", "reviewer", "Reviews a change.")
    (tmp_path / "reviewer.md").write_text("notes", encoding="utf-8")
    (tmp_path / "menu.txt").write_text("tea", encoding="utf-8")
    ran = dial_chat(tmp_path, "@reviewer read @menu.txt", "--output", "json")
    turn = json.loads(ran.stdout)
    assert turn["text"] == "Done."
    task = turn["tool_calls"][0]["arguments"]["task"]
    assert task.startswith("read @menu.txt\n\n[file menu.txt") and "tea" in task
