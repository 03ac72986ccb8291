"""The memory server as docs/memory.md configures it: what is remembered is there for the next program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dial_client import DialClient
from tests.e2e.test_main_job import NPM, needs_npm

DOC = Path(__file__).parents[2] / "docs" / "memory.md"
pytestmark = [pytest.mark.anyio, needs_npm]


async def test_what_the_memory_server_of_the_docs_remembers_is_there_for_the_next_program(tmp_path: Path) -> None:
    blocks = re.findall(r"```json\n(.*?)```", DOC.read_text(), re.DOTALL)
    entry = next(servers["memory"] for block in blocks if "memory" in (servers := json.loads(block)["mcpServers"]))
    assert entry["args"] == ["-y", "@modelcontextprotocol/server-memory"]
    entry |= {"command": str(NPM / "mcp-server-memory"), "args": [], "env": {"MEMORY_FILE_PATH": str(tmp_path / "m")}}
    garden = {"name": "garden", "entityType": "project", "observations": ["beans in May"]}
    async with DialClient(servers={"memory": entry}) as dial:
        assert (await dial.call("create_entities", {"entities": [garden]})).success
    async with DialClient(servers={"memory": entry}) as dial:
        found = await dial.call("search_nodes", {"query": "beans"})
    assert "garden" in str(found.content)
    assert found.taint == "memory/search_nodes"
