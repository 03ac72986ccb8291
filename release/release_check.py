"""Checks a release without publishing it: ``python -m release.release_check [PYTHON…]`` (`make release-check`).

Both archives are built twice and compared, and checked by twine and validate-pyproject. For each Python, the wheel is
installed into new environments from the package index: with pip as in README.md, with each single extra, and for the
first Python also by uvx and pipx. The first commands of README.md run in each, and the features of each extra are used.
"""

from __future__ import annotations

import filecmp
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dial_client import __version__
from release.components import ROOT
from release.installations import Installations, create_environment, read_version, run, say

TARGET = ROOT / "build" / "release"
TOOLS = ("hatchling>=1.28,<2", "pipx>=1.8,<2", "twine>=6,<7", "uv>=0.9", "validate-pyproject>=0.24,<1")


def main(pythons: Sequence[str]) -> None:
    """Run all checks; a failed command ends the program."""
    shutil.rmtree(TARGET, ignore_errors=True)
    tools = create_environment(TARGET / "tools", sys.executable)
    run(tools, "pip", "install", "--quiet", *TOOLS)
    archives = list(_build_twice(tools))
    run(tools, "twine", "check", "--strict", *map(str, archives))
    run(tools, "validate_pyproject", str(ROOT / "pyproject.toml"))
    wheel = next(path for path in archives if path.suffix == ".whl")
    for number, python in enumerate(pythons or [sys.executable]):
        version = read_version(python)
        installations = Installations(python, version, wheel, TARGET / f"python-{version}", tools)
        installations.try_pip()
        installations.try_extras()
        if number == 0:
            installations.try_uvx()
            installations.try_pipx()
    say(f"ready: {', '.join(path.name for path in archives)} in {TARGET.relative_to(ROOT)}")
    if "[project.urls]" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8"):
        say("left: [project.urls] in pyproject.toml, with the address of the public repository")
    say(f"left: git tag -s v{__version__} && git push origin v{__version__}; the workflow publishes, with attestations")


def _build_twice(tools: Path) -> Iterator[Path]:
    for name in ("dist", "again"):
        run(tools, "hatchling", "build", "--directory", str(TARGET / name), folder=ROOT)
    for path in sorted((TARGET / "dist").iterdir()):
        if not filecmp.cmp(path, TARGET / "again" / path.name, shallow=False):
            sys.exit(f"two builds of {path.name} differ")
        yield path


if __name__ == "__main__":
    main(sys.argv[1:])
