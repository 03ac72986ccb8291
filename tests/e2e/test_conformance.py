"""The host for the official conformance suite: its calls and its exit codes.

`make conformance` runs the suite itself.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conformance.__main__ import HERE, read_summary
from tests.support.program import PIPES, environment, run_to_end, start_python
from tests.support.servers.oauth_server import guarded

SUMMARY = """
Starting scenario: tools_call
=== SUITE SUMMARY ===

✓ tools_call: 2 passed, 0 failed
✗ auth/dpop: 9 passed, 3 failed
✗ sse-retry: 3 passed, 0 failed, 1 warnings

Total: 14 passed, 3 failed, 1 warnings

Not scored for 2026-07-28: 1 scenario(s) run, 1 failing. These do not affect conformance.
  ✗ auth/dpop (extension)
"""


def host(url: str, folder: Path, scenario: str) -> subprocess.CompletedProcess[str]:
    variables = environment(folder, MCP_CONFORMANCE_SCENARIO=scenario)
    return run_to_end(start_python(folder, ["-W", "ignore", str(HERE / "host.py"), url], env=variables, **PIPES))


def test_the_host_logs_in_and_calls_every_tool(tmp_path: Path) -> None:
    with guarded() as server:
        server.together.abort()
        ran = host(server.url, tmp_path, "auth/metadata-default")
        called = [path for path in server.paths() if path == "mcp tools/call"]
    assert ran.returncode == 0, ran.stderr
    assert "ready 2025-11-25" in ran.stderr
    assert len(called) >= 3


def test_the_host_fails_without_a_server(tmp_path: Path) -> None:
    ran = host("http://127.0.0.1:9/mcp", tmp_path, "tools_call")
    assert ran.returncode == 1
    assert "failed" in ran.stderr


def test_the_outcomes_are_read_from_the_summary_of_the_suite() -> None:
    assert read_summary(SUMMARY) == {"tools_call": True, "auth/dpop": False, "sse-retry": False}
    assert read_summary("✓ a: 1 passed") == {}


def test_only_scenarios_without_support_of_the_sdk_may_fail() -> None:
    text = (HERE / "expected-failures.txt").read_text(encoding="utf-8")
    named = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert named == ["auth/dpop", "auth/dpop-nonce", "auth/wif-jwt-bearer"]
