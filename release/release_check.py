"""What a release needs, with nothing published: ``python -m release.release_check [PYTHON…]`` (`make release-check`).

Both archives are built twice and compared, checked by twine and validate-pyproject, and the wheel is installed with its
extras from the package index into a new environment of each Python, where the first commands of README.md run.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dial_client import __version__
from release.components import ROOT

TARGET = ROOT / "build" / "release"
TOOLS = ("hatchling>=1.28,<2", "twine>=6,<7", "validate-pyproject>=0.24,<1")
EXTRAS = "local,demo"
QUESTION = "What time is it in Tokyo?"
_INVENTORY = (
    "import sys; from importlib.metadata import distributions; from pathlib import Path; "
    "sys.path.append(sys.argv[1]); from release.components import describe_environment, write_bill; "
    "write_bill(Path(sys.argv[2]), describe_environment(distributions()))"
)


def main(pythons: Sequence[str]) -> None:
    """Run all checks; a command that fails ends the program with its exit code."""
    shutil.rmtree(TARGET, ignore_errors=True)
    tools = _create_environment(TARGET / "tools", sys.executable)
    _run(tools, "pip", "install", "--quiet", *TOOLS)
    archives = list(_build_twice(tools))
    _run(tools, "twine", "check", "--strict", *map(str, archives))
    _run(tools, "validate_pyproject", str(ROOT / "pyproject.toml"))
    wheel = next(path for path in archives if path.suffix == ".whl")
    for python in pythons or [sys.executable]:
        _try_installation(python, wheel)
    _say(f"ready: {', '.join(path.name for path in archives)} in {TARGET.relative_to(ROOT)}")
    _say(
        f"left: git tag -s v{__version__} && git push origin v{__version__}; the workflow publishes, with attestations"
    )


def _build_twice(tools: Path) -> Iterator[Path]:
    for name in ("dist", "again"):
        _run(tools, "hatchling", "build", "--directory", str(TARGET / name), folder=ROOT)
    for path in sorted((TARGET / "dist").iterdir()):
        if not filecmp.cmp(path, TARGET / "again" / path.name, shallow=False):
            sys.exit(f"two builds of {path.name} differ")
        yield path


def _try_installation(python: str, wheel: Path) -> None:
    name = subprocess.check_output(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    ).strip()
    folder = TARGET / f"python-{name}"
    environment = _create_environment(folder / "environment", python)
    _run(environment, "pip", "install", "--quiet", f"{wheel}[{EXTRAS}]")
    _run(environment, "pip", "check")
    bill = str(folder / "environment.cdx.json")
    subprocess.run([environment, "-c", _INVENTORY, str(ROOT), bill], check=True, cwd=folder)
    home = folder / "home"
    work = folder / "work"
    work.mkdir(parents=True)
    variables = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
    }
    programs = environment.parent
    for words in (
        ("dial-client", "--version"),
        ("dial-chat", "init", "--yes", "--model", "local", "--server", "time"),
        ("dial-chat", "--output", "json", QUESTION),
    ):
        command = [str(programs / words[0]), *words[1:]]
        done = subprocess.run(
            command, check=True, cwd=work, env=os.environ | variables, stdout=subprocess.PIPE, text=True
        )
    turn = json.loads(done.stdout)
    tools = [(call["tool"], call["is_error"]) for call in turn["tool_calls"]]
    if ("get_current_time", False) not in tools:
        sys.exit(f"Python {name}: no tool was called for {QUESTION!r}: {turn['text']}")
    _say(f"Python {name}: {turn['text']}")


def _create_environment(folder: Path, python: str) -> Path:
    """Create a virtual environment, and return its interpreter."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _run(python: Path, module: str, *words: str, folder: Path = TARGET) -> None:
    _say(f"{module} {' '.join(words)}")
    subprocess.run([str(python), "-m", module, *words], check=True, cwd=folder)


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
