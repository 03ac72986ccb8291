"""Installs the wheel in each way that the documentation describes, into separate environments.

``Installations`` has the interpreter, the wheel and the tools. Each method ends the program if a command fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from release.components import ROOT
from release.extra_parts import PARTS

FIRST_EXTRAS = "local,demo"
QUESTION = "What time is it in Tokyo?"
_INVENTORY = (
    "import sys; from importlib.metadata import distributions; from pathlib import Path; "
    "sys.path.append(sys.argv[1]); from release.components import describe_environment, write_bill; "
    "write_bill(Path(sys.argv[2]), describe_environment(distributions()))"
)
_USE = "import sys; sys.path.append(sys.argv[1]); from release.extra_parts import use_extra; use_extra(sys.argv[2])"


@dataclass(frozen=True, slots=True)
class Installations:
    """Installs one wheel for one Python."""

    python: str
    """The interpreter."""
    version: str
    """The version of the interpreter, such as 3.13."""
    wheel: Path
    folder: Path
    """The folder for the environments and home folders."""
    tools: Path
    """The interpreter of the environment with uv and pipx."""

    def try_pip(self) -> None:
        """Install with pip as in README.md, write the bill of materials, and run the first commands."""
        environment = create_environment(self.folder / "pip", self.python)
        run(environment, "pip", "install", "--quiet", f"{self.wheel}[{FIRST_EXTRAS}]")
        run(environment, "pip", "check")
        bill = str(self.folder / "environment.cdx.json")
        subprocess.run([str(environment), "-P", "-c", _INVENTORY, str(ROOT), bill], check=True, cwd=self.folder)
        self._run_first_commands("pip", [str(environment.parent / "dial-chat")])

    def try_uvx(self) -> None:
        """Run the first commands without an installation."""
        uvx = [str(self.tools.parent / "uvx"), "--quiet", "--python", self.python]
        self._run_first_commands("uvx", [*uvx, "--from", f"{self.wheel}[{FIRST_EXTRAS}]", "dial-chat"])
        subprocess.run([*uvx, "--from", str(self.wheel), "dial-client", "--version"], check=True)

    def try_pipx(self) -> None:
        """Install with pipx, and run the first commands."""
        homes = {"PIPX_HOME": str(self.folder / "pipx"), "PIPX_BIN_DIR": str(self.folder / "pipx-programs")}
        install = [str(self.tools), "-m", "pipx", "install", "--quiet", "--python", self.python]
        subprocess.run([*install, f"{self.wheel}[{FIRST_EXTRAS}]"], check=True, cwd=self.folder, env=os.environ | homes)
        self._run_first_commands("pipx", [str(Path(homes["PIPX_BIN_DIR"]) / "dial-chat")])

    def try_extras(self) -> None:
        """Install the package without extras and with each single extra, and use it; then install all extras."""
        for extra in PARTS:
            name = extra or "core"
            environment = self._install_with_uv(name, f"{self.wheel}[{extra}]")
            say(f"Python {self.version}: {name} alone")
            subprocess.run(
                [str(environment), "-P", "-c", _USE, str(ROOT), extra], check=True, env=self._variables(name)
            )
        environment = self._install_with_uv("all", f"{self.wheel}[{','.join(filter(None, PARTS))}]")
        subprocess.run(
            [str(self.tools), "-m", "uv", "pip", "check", "--quiet", "--python", str(environment)], check=True
        )

    def _install_with_uv(self, name: str, requirement: str) -> Path:
        environment = self.folder / "extras" / name
        uv = [str(self.tools), "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--python", self.python, str(environment)], check=True)
        interpreter = interpreter_of(environment)
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", str(interpreter), requirement], check=True)
        return interpreter

    def _run_first_commands(self, method: str, program: Sequence[str]) -> None:
        work = self.folder / f"{method}-work"
        work.mkdir(parents=True)
        for words in (
            ("--version",),
            ("init", "--yes", "--model", "local", "--server", "time"),
            ("--output", "json", QUESTION),
        ):
            done = subprocess.run(
                [*program, *words], check=True, cwd=work, env=self._variables(method), stdout=subprocess.PIPE, text=True
            )
        turn = json.loads(done.stdout)
        tools = [(call["tool"], call["is_error"]) for call in turn["tool_calls"]]
        if ("get_current_time", False) not in tools:
            sys.exit(f"Python {self.version}, {method}: no tool was called for {QUESTION!r}: {turn['text']}")
        say(f"Python {self.version}, {method}: {turn['text']}")

    def _variables(self, method: str) -> Mapping[str, str]:
        """Return the environment variables of a user with an empty home folder and this user's cache of weights."""
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return os.environ | {"HOME": str(self.folder / f"{method}-home"), "XDG_CACHE_HOME": cache}


def create_environment(folder: Path, python: str) -> Path:
    """Create a virtual environment with pip, and return its interpreter."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return interpreter_of(folder)


def interpreter_of(environment: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def read_version(python: str) -> str:
    """Return the version of an interpreter, such as 3.13."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.check_output([python, "-c", program], text=True).strip()


def run(python: Path, module: str, *words: str, folder: Path | None = None) -> None:
    """Print a command, and run it."""
    say(f"{module} {' '.join(words)}")
    subprocess.run([str(python), "-m", module, *words], check=True, cwd=folder)


def say(text: str) -> None:
    """Print a line that is visible among the output of commands."""
    print(f"== {text}", flush=True)
