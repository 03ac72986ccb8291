"""Configurations as people write them: entries, files of other hosts, and texts with a mistake at a marked place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.inner import ConfigError, ServerSettings, parse, read_server_mapping

HERE = "⟦"
"""Marks the place in a text that the error must name."""
RUN = {"command": "x"}


def error_of(text: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> ConfigError:
    """Return the error of a text, after checking that it names the marked place."""
    before = text.partition(HERE)[0]
    with pytest.raises(ConfigError) as caught:
        parse(text.replace(HERE, ""), path="servers.json", folder=folder, environ=environ or {})
    error = caught.value
    assert (error.line, error.column) == (before.count("\n") + 1, len(before) - before.rfind("\n")), str(error)
    assert error.path == "servers.json"
    assert str(error).startswith(f"servers.json:{error.line}:{error.column}: ")
    return error


def in_a_file(entry: str) -> str:
    return f'{{"mcpServers": {{\n  "time": {entry}\n}}}}'


def server(entry: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ServerSettings:
    return read_server_mapping("time", entry, environ=environ or {}, folder="/conf")


CLAUDE_DESKTOP = r"""
{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "C:\\Users\\me\\Desktop", "/Users/me/Downloads"]
    },
    "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"GIT_AUTHOR_NAME": "me"}}
  },
  "globalShortcut": "Ctrl+Space",
  "preferences": {"sidebar": true}
}
"""
CLAUDE_CODE = """
{
  "mcpServers": {
    "api": {
      "type": "http",
      "url": "${API_BASE_URL:-https://api.example.test}/mcp",
      "headers": {"Authorization": "Bearer ${API_KEY}"},
      "oauth": {"clientId": "abc", "callbackPort": 8080}
    },
    "local": {"type": "stdio", "command": "/opt/server", "args": ["--db", "${DB_URL}"], "env": {"CACHE": "/tmp"}},
    "old": {"type": "sse", "url": "https://old.example.test/events"}
  }
}
"""
VS_CODE = """
// written by hand
{
  /* what is asked for */
  "inputs": [],
  "servers": {
    "github": {"type": "http", "url": "https://api.example.test/mcp/"}, // remote
    "playwright": {
      "command": "npx",
      "args": ["-y", "@microsoft/mcp-server-playwright", "--root=${workspaceFolder}"],
      "env": {"PORT": 8931, "DEBUG": null, "KEY": "${env:API_KEY}",},
      "envFile": "${workspaceFolder}/.env",
      "dev": {"watch": "src/**", "debug": {"type": "node"}},
    },
  },
}
"""
CURSOR = """
{"mcpServers": {
  "linear": {"url": "https://mcp.example.test/sse", "headers": {"X-Key": "${env:API_KEY}"}},
  "mine": {"command": "${userHome}/bin/mine", "args": ["${workspaceFolder}/src"], "env": {"KEY": "${env:API_KEY}"}}
}}
"""
CLINE = """
{"mcpServers": {
  "weather": {
    "autoApprove": ["get_forecast"], "disabled": false, "timeout": 60, "type": "stdio",
    "command": "node", "args": ["/path/build/index.js"], "env": {"KEY": "abc"}
  },
  "remote": {"type": "streamableHttp", "url": "https://h.example.test/mcp", "alwaysAllow": [], "disabled": true}
}}
"""
GEMINI = """
{
  "theme": "GitHub",
  "model": {"name": "gemini-4-pro"},
  "mcp": {"allowed": ["py"]},
  "mcpServers": {
    "py": {
      "command": "python", "args": ["-m", "server", "--port", "8080"], "cwd": "./server", "timeout": 600000,
      "env": {"KEY": "${API_KEY}"}, "trust": false, "includeTools": ["safe"], "excludeTools": ["unsafe"]
    },
    "http": {"httpUrl": "http://localhost:3000/mcp", "headers": {"Authorization": "Bearer t"}, "timeout": 5000},
    "sse": {"url": "http://localhost:8080/sse", "description": "events", "authProviderType": "google_credentials"}
  }
}
"""
