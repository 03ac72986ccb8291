"""docs/gateway.md: what it prints for other hosts is what the program prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.inner import HostName, build_gateway_entry, read_host_file, write_gateway_text
from tests.support.gateway_clients import text_of
from tests.support.gateways import program, wait_for_tools
from tests.support.program import dial_chat, python_server, write_config

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
ENVIRON = {"PATH": "/home/me/.local/bin:/usr/local/bin:/usr/bin:/bin"}
BLOCKS = {"json": HostName.CURSOR, "toml": HostName.CODEX, "yaml": HostName.GOOSE}


@pytest.mark.parametrize("language", BLOCKS)
def test_the_entries_of_the_page_are_those_that_the_program_prints(tmp_path: Path, language: str) -> None:
    shown, *_ = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)  # later blocks are servers
    host = BLOCKS[language]
    entry = build_gateway_entry(host, ["/home/me/.local/bin/dial-chat"], (), ["DOCS_TOKEN"], ENVIRON, "linux")
    printed = write_gateway_text(host, entry, "linux").text
    files = {"shown": shown, "printed": printed}
    for name, text in files.items():
        (tmp_path / f"{name}.{language}").write_text(text)
    (first,), (second,) = (read_host_file(tmp_path / f"{name}.{language}", host, tmp_path) for name in files)
    assert first == second
    assert language == "json" or shown == printed  # the page writes short lists of JSON in one line


@pytest.mark.parametrize("host", [HostName.CLAUDE_CODE, HostName.GEMINI_CLI])
def test_the_commands_of_the_page_are_those_that_the_program_prints(host: HostName) -> None:
    entry = build_gateway_entry(host, ["/home/me/.local/bin/dial-chat"], (), (), ENVIRON, "linux")
    assert f"| `{write_gateway_text(host, entry, 'linux').command}` |" in PAGE


@pytest.mark.anyio
async def test_a_client_that_cannot_ask_reads_the_words_of_the_page(tmp_path: Path) -> None:
    write_config(tmp_path, {"time": python_server("mcp_server_time")})
    async with program(tmp_path, "legacy") as client:
        await wait_for_tools(client, "time__get_current_time")
        denied = await client.call_tool("time__get_current_time", {"timezone": "Asia/Tokyo"})
    assert text_of(denied).replace(str(tmp_path), "/home/me/project") in PAGE


def test_the_command_with_other_options_prints_them(tmp_path: Path) -> None:
    write_config(tmp_path, {})
    (tmp_path / "work.json").write_text('{"mcpServers": {}}')
    (line,) = re.findall(r"`(dial-chat gateway --print codex [^`]*)`", PAGE)
    shown = dial_chat(tmp_path, *shlex.split(line)[1:])
    assert shown.returncode == 0, shown.stderr
    assert f'"--config", "{(tmp_path / "work.json").as_posix()}", "--allow", "time/*"' in shown.stdout
