"""``dial-chat help``: the documentation of an installed program; and the commands of the page for CI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.support.fork_server import write_launcher
from tests.support.program import LONG, dial_chat, environment, python_server, write_config
from tests.support.pseudo_terminal import plain, terminal

ROOT = Path(__file__).parents[2]


def write_programs(folder: Path, modules: Mapping[str, str]) -> Path:
    """Write programs that run modules, and return their folder."""
    programs = folder / "bin"
    programs.mkdir()
    for name, module in modules.items():
        program = python_server(module)
        write_launcher(programs / name, [program["command"], *program["args"]])
    return programs


def test_without_a_topic_the_pages_are_listed(tmp_path: Path) -> None:
    done = dial_chat(tmp_path, "help")
    assert done.returncode == 0
    assert re.search(r"^ci +In CI and scripts$", done.stdout, re.MULTILINE)
    assert re.search(r"^doctor +dial-chat doctor$", done.stdout, re.MULTILINE)


def test_a_page_is_printed_as_it_is_written(tmp_path: Path) -> None:
    done = dial_chat(tmp_path, "help", "ci")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_a_code_of_doctor_shows_its_section(tmp_path: Path) -> None:
    shown = dial_chat(tmp_path, "help", "dc301").stdout
    assert shown.startswith("### DC301: ")
    assert shown.count("### ") == 1


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("polcy", "dial-chat help policy"),
        ("many_tool", "dial-chat help many-tools"),
        ("call", "dial-chat call --help"),
        ("servers login", "dial-chat servers login --help"),
        ("DC999", "lists"),
        ("nothing", "lists"),
    ],
)
def test_the_nearest_page_or_command_is_named(tmp_path: Path, topic: str, hint: str) -> None:
    done = dial_chat(tmp_path, "help", *topic.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


def test_in_a_terminal_a_page_is_rendered(tmp_path: Path) -> None:
    with terminal(tmp_path, "help", "DC301", TERM="xterm-256color") as screen:
        assert screen.leave() == 0
        shown = plain(screen.raw)
    assert "DC301: " in shown
    assert "###" not in shown


def test_each_page_of_an_installation_exists_and_is_listed_once() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shared = data["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    pages = {source: target for source, target in shared.items() if source.endswith(".md")}
    assert [source for source in pages if not (ROOT / source).is_file()] == []
    assert all(target == f"share/doc/dial-client/{Path(source).name}" for source, target in pages.items())
    assert {"docs/agents.md", "docs/ci.md", "docs/doctor.md", "docs/many-tools.md", "docs/policy.md"} <= pages.keys()


def test_the_pages_that_the_program_names_are_those_of_an_installation() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "dial_client" / "cli").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"dial-chat help ([a-z][a-z-]+)", text)}
    assert "editors" in named
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installed = {Path(name).stem for name in data["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]}
    assert named - installed == set()


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell")
def test_the_shell_commands_of_the_page_for_ci_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    write_config(tmp_path, {"git": {"command": "mcp-server-git"}})
    programs = write_programs(tmp_path, {"dial-chat": "dial_client", "mcp-server-time": "mcp_server_time"})
    write_launcher(programs / "python3", [sys.executable])
    (tmp_path / "replies.json").write_text(json.dumps(["yes"]))
    env = environment(tmp_path, MODEL="scripted:replies.json", PATH=f"{programs}:/usr/bin:/bin")
    for block in blocks:
        ran = subprocess.run(
            ["sh", "-euc", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG, check=False
        )
        assert ran.returncode == 0, (block, ran.stdout, ran.stderr)
    assert (tmp_path / "review.md").read_text().strip() == "yes"


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell")
def test_the_jobs_of_the_page_for_ci_write_the_notes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    github, gitlab = (
        yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    )
    steps = github["jobs"]["notes"]["steps"]
    assert all(("uses" in step) is not ("run" in step) for step in steps)
    jobs = [[step["run"] for step in steps if "run" in step], gitlab["notes"]["script"]]
    programs = write_programs(tmp_path, {"dial-chat": "dial_client", "mcp-server-git": "mcp_server_git"})
    env = environment(tmp_path, PATH=f"{programs}:{os.environ['PATH']}", GIT_CONFIG_GLOBAL=os.devnull)
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "servers.json").write_text(
        re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    )
    log = {"tool_calls": [{"name": "git_log", "arguments": {"repo_path": ".", "max_count": 1}}]}
    (tmp_path / "replies.json").write_text(json.dumps([log, "It is faster."]))
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), (*author, "commit", "-q", "--allow-empty", "-m", "Make it faster")):
        subprocess.run(["git", *words], cwd=tmp_path, env=env, check=True)
    for install, ask in jobs:
        assert install == "pip install 'dial-client[demo]'"
        command = ask.replace("openai:gpt-6-luna", "scripted:replies.json")
        ran = subprocess.run(
            ["sh", "-euc", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert "git_log" in ran.stderr
        assert (tmp_path / "notes.md").read_text() == "It is faster.\n"
        (tmp_path / "notes.md").unlink()
