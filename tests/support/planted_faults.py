"""Faults that are planted in configurations, each with its code: those that are found without starting anything."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Fault:
    """A configuration with one fault."""

    code: str
    text: str
    place: tuple[int, int] | None = None
    """Line and column of the finding; None where they are not the point."""


def entry(**values: Any) -> str:
    return json.dumps({"mcpServers": {"it": values}})


def top(**values: Any) -> str:
    return json.dumps({"mcpServers": {}} | values)


FAULTS = (
    Fault("DC101", '{"mcpServers": {'),
    Fault("DC101", '{"mcpServers": {}\n "models": {}}', (2, 2)),
    Fault("DC101", '{"mcpServers": {"it": {"command": "python3", "args": [01]}}}'),
    Fault("DC101", ""),
    Fault("DC102", entry(command=PYTHON, comand="x")),
    Fault("DC102", '{\n  "mcpServers": {\n    "it": {"command": "' + PYTHON + '", "argz": []}\n  }\n}'),
    Fault("DC102", top(defaultModle="local")),
    Fault("DC102", top(profiles={"work": {"modle": "local"}})),
    Fault("DC103", entry(command=PYTHON, env={"KEY": "${NOT_SET_AT_ALL}"})),
    Fault("DC103", entry(url="https://mcp.test/", headers={"Authorization": "Bearer ${NOT_SET_AT_ALL}"})),
    Fault("DC103", top(defaultModel="${NOT_SET_AT_ALL}")),
    Fault("DC104", entry(command=7)),
    Fault("DC104", entry(command=PYTHON, args="main.py")),
    Fault("DC104", entry(url="mcp.test")),
    Fault("DC104", entry(command=PYTHON, startupTimeout=0)),
    Fault("DC104", entry(command=PYTHON, env=["A=1"])),
    Fault("DC104", top(policy=[{"allwo": "*"}])),
    Fault("DC104", top(models={"m": {"api": "soap"}})),
    Fault("DC104", top(startupPatience="ten")),
    Fault("DC104", '{"mcpServers": []}'),
    Fault("DC105", entry(command=PYTHON, envFile="no-such.env")),
    Fault("DC106", entry(args=["x"])),
    Fault("DC107", entry(command=PYTHON, url="https://mcp.test/")),
    Fault("DC107", entry(command=PYTHON, enabled=True, disabled=True)),
    Fault("DC107", json.dumps({"mcpServers": {}, "servers": {}})),
    Fault("DC108", entry(command=PYTHON, timeout=30)),
    Fault("DC109", entry(command=PYTHON, env={"HOME_OF_IT": "$HOME"})),
    Fault("DC110", entry(command=PYTHON, env={"API_KEY": "sk-live-4f9a8b7c6d5e4f3a2b1c"})),
    Fault("DC110", entry(url="https://mcp.test/", headers={"Authorization": "Bearer abcdef0123456789abcdef"})),
    Fault("DC112", entry(url="http://mcp.test/", headers={"Authorization": "Bearer abcdef0123456789abcdef"})),
    Fault("DC113", entry(command=PYTHON, cwd="no-such-folder")),
    Fault("DC117", json.dumps({"mcpServers": {name: {"command": PYTHON, "args": ["-V"]} for name in ("a", "b")}})),
    Fault("DC201", entry(command="no-such-program-at-all")),
    Fault("DC201", entry(command="./no-such-program")),
    Fault("DC202", entry(command="python3 -m server")),
    Fault("DC203", entry(command="npx", args=["@x/server"])),
    Fault("DC204", entry(command="docker", args=["run", "--rm", "mcp/time"])),
    Fault("DC205", entry(command="docker", args=["run", "-it", "--rm", "mcp/time"])),
    Fault("DC206", entry(command=PYTHON, args=["no-such-server.py"])),
    Fault("DC208", entry(command="npx", args=["-y", "@modelcontextprotocol/server-filesystem", "/"])),
    Fault("DC208", entry(command="docker", args=["run", "-i", "--privileged", "mcp/time"])),
    Fault("DC208", entry(command="docker", args=["run", "-i", "-v", "/:/host", "mcp/time"])),
)
"""One fault each."""

SOUND = (
    '{"mcpServers": {}}',
    entry(command=PYTHON, args=["-m", "server"]),
    entry(command=PYTHON, args=["-m", "server"], disabled=True, autoApprove=[], timeout=60000),
    entry(command="npx", args=["-y", "@modelcontextprotocol/server-memory"]),
    entry(command="docker", args=["run", "-i", "--rm", "-e", "TZ", "mcp/time"]),
    entry(url="https://mcp.test/mcp", headers={"Authorization": "Bearer ${TOKEN_THAT_IS_SET}"}),
    entry(url="http://localhost:8000/mcp"),
    '{\n  // a comment\n  "mcpServers": {"it": {"command": "uvx", "args": ["mcp-server-time"]},}\n}',
    json.dumps({"servers": {"it": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"]}}, "inputs": []}),
    json.dumps({"mcpServers": {}, "models": {"m": {"base_url": "http://127.0.0.1:1/v1"}}, "defaultModel": "m"}),
)
"""Configurations in which nothing is wrong."""
