"""Somebody who has Python and nothing else, in an empty folder, and types the commands of the documents.

The program is installed from its wheel into an environment of its own. Its dependencies, and pip, are those of the
tests' environment: to fetch them again takes minutes, and `make release-check` does. The servers of the demo are forks,
where there can be forks. With ``DIAL_TEST_ANSWERS`` the embedded model answers; else a script does.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.fork_server import DEMO_SERVERS, write_launcher
from tests.support.program import LONG, python_server
from tests.support.real_weights import HAS_MODEL
from tests.support.screens import ScreenReader, open_terminal
from tests.support.web_page import wait_for_url

ROOT = Path(__file__).parents[2]

_PATIENCE = 800.0
"""Seconds for an answer of the embedded model beside other work."""


def list_commands(page: str, language: str = "sh") -> list[str]:
    """Return the lines of the blocks of a document."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def _environment_of_a_newcomer(folder: Path, wheels: Path) -> dict[str, str]:
    """Return variables without keys, with folders of their own, and with `python3`."""
    programs = folder / "programs"
    programs.mkdir()
    write_launcher(programs / "python3", [sys.executable])
    for module in DEMO_SERVERS:
        server = python_server(module)
        write_launcher(programs / module.replace("_", "-"), [server["command"], *server["args"]])
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
        "TERM": "xterm-256color",
        "PIP_NO_INDEX": "1",
        "PIP_NO_COMPILE": "1",
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
            timeout=_PATIENCE,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        assert "warning" not in ran.stderr.lower(), (command, ran.stderr)
        return ran

    @contextmanager
    def forked(self) -> Iterator[None]:
        """Let `dial-chat` be a fork for as long as this lasts, where there can be forks: its start takes a second.

        The embedded model is asked by the installed program alone.
        """
        if HAS_MODEL:
            yield
            return
        program = self.folder / ".venv" / "bin" / "dial-chat"
        installed = program.read_text(encoding="utf-8")
        server = python_server("dial_client")
        write_launcher(program, [server["command"], *server["args"]])
        try:
            yield
        finally:
            program.write_text(installed, encoding="utf-8")

    @contextmanager
    def start(self, command: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program in the environment for as long as this lasts."""
        line = f". .venv/bin/activate; exec {command}"
        with subprocess.Popen(["bash", "-c", line], cwd=self.folder, env=self.variables, **streams) as process:
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(LONG)
                finally:
                    process.kill()

    @contextmanager
    def serve(self, *words: str) -> Iterator[str]:
        """Run `dial-chat serve` at a free port, and provide the address that it prints."""
        log = self.folder.parent / "serve.log"
        command = shlex.join(["dial-chat", "serve", "--port", "0", *words])
        with log.open("w") as stderr, self.start(command, stdin=subprocess.DEVNULL, stderr=stderr) as process:
            yield wait_for_url(process, log)

    @contextmanager
    def type_at_terminal(self, command: str) -> Iterator[ScreenReader]:
        """Run a program in a terminal, and provide its screen."""
        ours, theirs = open_terminal(100, 40)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        with self.start(command, **streams, start_new_session=True) as process:
            os.close(theirs)
            reader = ScreenReader(ours, process, 100, 40)
            reader.patience = _PATIENCE
            yield reader
            reader.close()


@contextmanager
def installed_newcomer(folder: Path, commands: Sequence[str]) -> Iterator[Newcomer]:
    """Provide somebody who has typed the commands that install the program."""
    (folder / "empty").mkdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")],
        check=True,
        cwd=ROOT,
        capture_output=True,
        timeout=LONG,
    )
    person = Newcomer(folder / "empty", _environment_of_a_newcomer(folder, folder / "wheels"))
    for command in commands:
        if "-m venv" in command:
            # To install pip into the environment would take most of the time of the first command.
            person.run(command.replace("-m venv", "-m venv --without-pip"))
            programs = person.folder / ".venv" / "bin"
            write_launcher(programs / "pip", [sys.executable, "-m", "pip", "--python", str(programs / "python")])
            continue
        person.run(command)
        if command.startswith("pip install"):
            [packages] = (person.folder / ".venv" / "lib").glob("python*/site-packages")
            (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    yield person
    shutil.rmtree(folder)
