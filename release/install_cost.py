"""Measures the size and import time of the package and each dependency: ``make install-cost``.

The wheel is built, and installed with all extras into a new environment. Sizes are the sizes of the installed files,
without compiled bytecode. Import times are processor time in a separate process, with bytecode, the median of several
runs. The tables are written into docs/installation.md.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from release.components import ROOT
from release.extra_parts import PARTS
from release.installations import create_environment, interpreter_of, run, say

TARGET = ROOT / "build" / "cost"
PAGE = ROOT / "docs" / "installation.md"
RUNS = 9
OWN = "dial-client"
MODULES = {
    "anthropic": "anthropic",
    "azure-identity": "azure.identity.aio",
    "genai-prices": "genai_prices",
    "huggingface-hub": "huggingface_hub",
    "jsonschema-rs": "jsonschema_rs",
    "markdown-it-py": "markdown_it",
    "mcp": "mcp.client",
    "mcp-server-git": "mcp_server_git",
    "mcp-server-time": "mcp_server_time",
    "opentelemetry-api": "opentelemetry.trace",
    "prompt-toolkit": "prompt_toolkit",
    "pyyaml": "yaml",
    "sqlalchemy": "sqlalchemy.ext.asyncio",
}
"""Modules whose names differ from their packages, or that are used instead of the package's main module."""
STAGES = {
    "`from dial_client import DialClient`": "from dial_client import DialClient",
    "a first answer": (
        "import asyncio\nfrom dial_client import DialClient, ScriptedProvider\n"
        "async def main():\n"
        "    async with DialClient(ScriptedProvider(['Hello.'])) as dial:\n"
        "        await dial.run('Hello.')\n"
        "asyncio.run(main())"
    ),
    "`dial-chat --help`": "import sys\nfrom dial_client.cli import main\nsys.argv = ['dial-chat', '--help']\nmain()",
}
"""Programs, in the order in which a user runs them. A dependency is listed with the first program that imports it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The distributions of an environment."""

    sizes: Mapping[str, int]
    """Bytes of each distribution."""
    requirements: Mapping[str, tuple[Requirement, ...]]

    def find_closure(self, roots: Iterable[Requirement]) -> frozenset[str]:
        """Return the names of all distributions that requirements install, including the required ones."""
        found: set[tuple[str, str]] = set()
        waiting = list(_name_with_extras(*roots))
        while waiting:
            name, extra = waiting.pop()
            if (name, extra) in found or name not in self.sizes:
                continue
            found.add((name, extra))
            waiting += _name_with_extras(
                *(
                    required
                    for required in self.requirements[name]
                    if required.marker is None or required.marker.evaluate({"extra": extra})
                )
            )
        return frozenset(name for name, _ in found)

    def direct_requirements(self, extra: str = "") -> list[Requirement]:
        """Return the direct requirements of this package, without extras, or those of one extra."""
        return [
            required
            for required in self.requirements[OWN]
            if (required.marker is None) == (extra == "")
            and (required.marker is None or required.marker.evaluate({"extra": extra}))
        ]

    def add_sizes(self, names: Iterable[str]) -> float:
        """Return the size of distributions in MB."""
        return sum(self.sizes[name] for name in names) / 1e6


def _name_with_extras(*requirements: Requirement) -> Iterable[tuple[str, str]]:
    """Return pairs of a required name and an extra: each name with an empty extra, and with each of its extras."""
    return [(normalize(each.name), extra) for each in requirements for extra in ("", *sorted(each.extras))]


def main() -> None:
    """Measure, and write the tables into the page of the documentation."""
    shutil.rmtree(TARGET, ignore_errors=True)
    python = _install()
    installed = read_environment(next((python.parent.parent / "lib").glob("python*/site-packages")))
    version = subprocess.check_output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True)
    tables = {
        "core": "\n".join(_core_rows(python, installed)),
        "extras": "\n".join(_extra_rows(python, installed)),
        "programs": "\n".join(_program_rows(python)),
        "place": (
            f"Measured with Python {version.strip()} on {sys.platform} ({platform.machine()}), "
            f"{os.cpu_count()} processors, the newest versions of all dependencies."
        ),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = replace_table(text, name, table)
    PAGE.write_text(text, encoding="utf-8")
    say(f"written: {PAGE.relative_to(ROOT)}")


def replace_table(page: str, name: str, table: str) -> str:
    """Return a page in which the text between the marks of a table is replaced."""
    begin, end = f"<!-- {name} -->\n\n", f"\n\n<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{table}{end}{after}"


def normalize(name: str) -> str:
    """Return the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_environment(folder: Path) -> Installed:
    """Return the distributions in a folder `site-packages`."""
    found = {normalize(each.metadata["Name"]): each for each in distributions(path=[str(folder)])}
    return Installed(
        {name: _measure(distribution) for name, distribution in found.items()},
        {name: tuple(map(Requirement, each.requires or ())) for name, each in found.items()},
    )


def _measure(distribution: Distribution) -> int:
    files = [Path(str(file.locate())) for file in distribution.files or () if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.is_file())


def _install() -> Path:
    """Build the wheel, install it with all extras, and return the interpreter."""
    tools = create_environment(TARGET / "tools", sys.executable)
    run(tools, "pip", "install", "--quiet", "hatchling>=1.28,<2", "uv>=0.9")
    run(tools, "hatchling", "build", "-t", "wheel", "--directory", str(TARGET / "dist"), folder=ROOT)
    [wheel] = (TARGET / "dist").glob("*.whl")
    environment = TARGET / "environment"
    python = interpreter_of(environment)
    run(tools, "uv", "venv", "--quiet", "--python", sys.executable, str(environment))
    extras = ",".join(filter(None, PARTS))
    run(tools, "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), f"{wheel}[{extras}]")
    return python


def _core_rows(python: Path, installed: Installed) -> Iterable[str]:
    direct = installed.direct_requirements()
    everything = installed.find_closure(direct)
    stages = _find_first_stages(python)
    total = installed.add_sizes([*everything, OWN])
    rows = {}
    for required in direct:
        name = normalize(required.name)
        alone = everything - installed.find_closure(each for each in direct if each is not required)
        module = MODULES.get(name, name.replace("-", "_"))
        rows[name] = (installed.add_sizes([name]), installed.add_sizes(alone), len(alone), module)
    yield "| dependency | its own size, MB | gone without it, MB | packages gone | import, ms | imported first by |"
    yield "|---|--:|--:|--:|--:|---|"
    for name, (own, gone, count, module) in sorted(rows.items(), key=lambda row: -row[1][0]):
        milliseconds = _measure_import(python, f"import {module}")
        stage = stages.get(module, "where it is used")
        yield f"| `{name}` | {own:.1f} | {gone:.1f} | {count} | {milliseconds:.0f} | {stage} |"
    yield f"| `{OWN}` itself | {installed.add_sizes([OWN]):.1f} | | | | |"
    yield f"| all, with {len(everything - set(rows))} more packages that these need | {total:.1f} | | | | |"
    indirect = sorted(everything - set(rows), key=lambda name: -installed.sizes[name])[:5]
    sizes = [f"`{name}` {installed.add_sizes([name]):.1f} MB" for name in indirect]
    yield f"\nThe largest of the packages that dependencies need: {', '.join(sizes)}."


def _extra_rows(python: Path, installed: Installed) -> Iterable[str]:
    core = installed.find_closure(installed.direct_requirements())
    yield "| extra | adds, MB | packages | import, ms |"
    yield "|---|--:|--:|--:|"
    for extra in filter(None, PARTS):
        direct = installed.direct_requirements(extra)
        added = installed.find_closure(direct) - core
        names = [normalize(required.name) for required in direct]
        modules = [MODULES.get(name, name.replace("-", "_")) for name in names]
        if extra in _CLOUD_MODULES:
            modules = [_CLOUD_MODULES[extra]]
        milliseconds = _measure_import(python, f"import {', '.join(modules)}")
        yield f"| `{extra}` | {installed.add_sizes(added):.1f} | {len(added)} | {milliseconds:.0f} |"


_CLOUD_MODULES = {"bedrock": "boto3", "vertex": "google.auth"}
"""The modules to import for extras that install an extra of a dependency."""


def _program_rows(python: Path) -> Iterable[str]:
    yield "| program | processor time, ms |"
    yield "|---|--:|"
    yield f"| `python -c pass` | {_measure_program(python, 'pass'):.0f} |"
    for name, program in ({"`import dial_client`": "import dial_client"} | STAGES).items():
        yield f"| {name} | {_measure_program(python, program):.0f} |"


def _find_first_stages(python: Path) -> Mapping[str, str]:
    """Return the first program that imports each module."""
    found: dict[str, str] = {}
    for name, program in STAGES.items():
        end = "import atexit, json, sys\natexit.register(lambda: print('\\n' + json.dumps(list(sys.modules))))\n"
        lines = _output(python, end + program).splitlines()
        for module in json.loads(lines[-1]):
            found.setdefault(module, name)
    return found


def _measure_import(python: Path, statement: str) -> float:
    """Return the milliseconds of processor time that an import takes."""
    program = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    return 1000 * statistics.median(float(_output(python, program).split()[-1]) for _ in range(RUNS))


def _measure_program(python: Path, program: str) -> float:
    """Return the milliseconds of processor time of a whole process."""
    end = "import atexit, time\natexit.register(lambda: print('\\n%f' % time.process_time()))\n"
    return 1000 * statistics.median(float(_output(python, end + program).split()[-1]) for _ in range(RUNS))


def _output(python: Path, program: str) -> str:
    return subprocess.check_output([python, "-c", program], text=True, cwd=TARGET)


if __name__ == "__main__":
    main()
