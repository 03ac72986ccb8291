"""The hosts, each in a virtual environment of its own below ``build/hosts``, with the pins beside its adapter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from probes.__main__ import ADAPTERS, build_environment
from probes.host_process import adapter_command
from probes.verdict import Target

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "hosts"
INSTALL_SECONDS = 600
LOOP, OWN = "plain_loop", "dial_client"
HOSTS = {
    LOOP: ("mcp", "openai"),
    OWN: ("dial-client", "mcp"),
    "openai_agents": ("openai-agents", "mcp"),
    "pydantic_ai": ("pydantic-ai-slim", "mcp"),
    "mcp_use": ("mcp-use", "mcp"),
    "langchain": ("langchain-mcp-adapters", "langgraph", "mcp"),
    "fast_agent": ("fast-agent-mcp", "mcp"),
}
"""The adapters, with the packages whose versions the table names."""
# fast-agent needs 3.12; all hosts run on the same Python.
PYTHONS = ("python3.13", "python3.14", "python3.12")


_VERSIONS = """
import importlib.metadata, json, platform, sys
packages = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({**packages, "python": platform.python_version()}))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An installed host."""

    host: str
    python: str
    versions: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    """Why the host is not there."""

    @property
    def target(self) -> Target:
        """How the host is started."""
        command = adapter_command(str(ADAPTERS / f"{self.host}.py"), self.python)
        return Target(command, build_environment(), FOLDER / f"{self.host}.err")


def find_python() -> str:
    """Return the Python for all hosts: one of `PYTHONS` that is here and has `venv`, or the one that runs this."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for name in PYTHONS:
        version = name.removeprefix("python")
        for program in (name, *(str(folder / "bin" / "python") for folder in sorted(pyenv.glob(f"{version}.*")))):
            try:
                subprocess.run([program, "-c", "import ensurepip, venv"], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            return program
    return sys.executable


def prepare(hosts: Iterable[str], python: str) -> Iterator[Environment]:
    """Install the hosts, two at a time, and yield their environments in order."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda host: _prepare(host, python), hosts)


def describe_installed(host: str, python: str) -> Environment:
    """Return the environment of a host that is installed in a Python, or why it is not."""
    asked = subprocess.run([python, "-c", _VERSIONS, *HOSTS[host]], check=False, capture_output=True, text=True)
    if asked.returncode:
        return Environment(host, python, problem=_last_line(asked.stderr))
    return Environment(host, python, json.loads(asked.stdout))


def install(folder: Path, pins: Path, python: str, *further: str) -> str:
    """Make a virtual environment with the pinned packages, unless it is there; return why it is not, or an empty text.

    `further` are the arguments of pip for one more installation.
    """
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_bytes() == pins.read_bytes():
        return ""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    steps = [[python, "-m", "venv", "--clear", str(folder)], [*pip, "--requirement", str(pins)]]
    steps += [[*pip, *further]] if further else []
    for step in steps:
        ended = subprocess.run(step, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if ended.returncode:
            return f"not installed: {_last_line(ended.stderr)}"
    stamp.write_bytes(pins.read_bytes())
    return ""


def _prepare(host: str, python: str) -> Environment:
    folder = FOLDER / host
    program = str(folder / "bin" / "python")
    further = ("--no-deps", "--editable", str(ROOT)) if host == OWN else ()
    problem = install(folder, ADAPTERS / f"{host}.txt", python, *further)
    return Environment(host, program, problem=problem) if problem else describe_installed(host, program)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason was given"
