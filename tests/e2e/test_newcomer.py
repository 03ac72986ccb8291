"""The commands of README.md, in an empty folder of somebody who has Python and nothing else.

The program is installed from its wheel into an environment of its own. Its dependencies are those of the tests'
environment: to fetch them again takes minutes, and `make release-check` does. With ``DIAL_TEST_ANSWERS`` the embedded
model answers, as in `.ci/run`; else a script does.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from dial_client.settings import configuration
from tests.support.program import LONG

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HAS_MODEL = bool(os.environ.get("DIAL_TEST_ANSWERS"))
REPLIES = [
    {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]},
    "It is noon in Tokyo.",
]
pytestmark = [
    pytest.mark.once,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell"),
]


def list_commands(language: str = "sh") -> list[str]:
    """Return the lines of the blocks of README.md."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def environment_of_a_newcomer(folder: Path, wheels: Path) -> dict[str, str]:
    """Return variables without keys, with folders of their own, and with `python3`."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    (programs / "python3").chmod(0o755)
    home = folder / "home"
    home.mkdir()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return {
        "PATH": os.pathsep.join(
            [str(programs), "/usr/local/bin", "/usr/bin", "/bin", str(Path(sys.executable).parent)]
        ),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache if HAS_MODEL else home / "cache"),
        "LANG": "C.UTF-8",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


class Newcomer:
    """Somebody in an empty folder, who types commands."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        self.variables = variables

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line as bash does, in the environment if there is one."""
        active = (self.folder / ".venv").exists() and "-m venv" not in command
        line = f". .venv/bin/activate; {command}" if active else command
        ran = subprocess.run(
            ["bash", "-c", line],
            check=False,
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        assert "warning" not in ran.stderr.lower(), (command, ran.stderr)
        return ran


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """Somebody who has typed the first four commands of README.md."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "empty").mkdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")],
        check=True,
        cwd=ROOT,
        capture_output=True,
        timeout=LONG,
    )
    person = Newcomer(folder / "empty", environment_of_a_newcomer(folder, folder / "wheels"))
    for command in list_commands()[:4]:
        person.run(command)
        if command.startswith("pip install"):
            [packages] = (person.folder / ".venv" / "lib").glob("python*/site-packages")
            (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    yield person
    shutil.rmtree(folder)


def test_the_readme_begins_with_the_commands_that_lead_to_an_answer() -> None:
    commands = [re.sub(r"\s+#.*", "", command) for command in list_commands()]
    assert commands == [
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install 'dial-client[local,demo]'",
        "dial-chat init --yes --model local --server time",
        'dial-chat "What time is it in Tokyo?"',
        "make demo",
        "make test",
        "dial-chat serve",
    ]
    assert len(README.splitlines()) <= 150


def test_the_program_runs_from_its_wheel_under_both_names(newcomer: Newcomer) -> None:
    place = newcomer.run("python -c 'import dial_client; print(dial_client.__file__)'").stdout
    assert place.startswith(str(newcomer.folder / ".venv"))
    version = newcomer.run("dial-client --version").stdout
    assert version == newcomer.run("dial-chat --version").stdout != ""


def test_init_writes_the_configuration_of_the_first_steps(newcomer: Newcomer) -> None:
    settings = configuration.load(newcomer.folder / "servers.json")
    assert (settings.default_model, list(settings.servers)) == ("local", ["time"])


def test_the_first_question_is_answered_from_a_tool(newcomer: Newcomer) -> None:
    [question] = [command for command in list_commands() if command.startswith('dial-chat "')]
    if not HAS_MODEL:
        (newcomer.folder / "replies.json").write_text(json.dumps(REPLIES), encoding="utf-8")
        question = question.replace("dial-chat", "dial-chat -m scripted:replies.json")
    ran = newcomer.run(question)
    assert re.search(r"\d\d?:\d\d|noon", ran.stdout), ran.stdout
    turn = json.loads(newcomer.run(question.replace("dial-chat", "dial-chat --output json")).stdout)
    calls = [(call["tool"], call["arguments"].get("timezone"), call["is_error"]) for call in turn["tool_calls"]]
    assert (turn["stop_reason"], calls) == ("answered", [("get_current_time", "Asia/Tokyo", False)])


@pytest.mark.skipif(
    not HAS_MODEL, reason="DIAL_TEST_ANSWERS is not set: tests/e2e/test_documents.py runs it with a script"
)
def test_the_program_of_the_readme_runs(newcomer: Newcomer) -> None:
    (newcomer.folder / "first.py").write_text("\n".join(list_commands("python")) + "\n", encoding="utf-8")
    assert "['get_current_time']" in newcomer.run("python first.py").stdout
