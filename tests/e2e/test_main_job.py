"""The main use case: a question that needs a tool of a real server, with each model API, as a program or library."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, Message, ServerState
from dial_client.testing import ScriptedProvider
from tests.support.model_endpoint import Call, Say, model_endpoint
from tests.support.program import dial_chat, write_config

ROOT = Path(__file__).parents[2]
NPM = ROOT / "build" / "npm" / "node_modules" / ".bin"
TIME = {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "autoApprove": ["*"]}
QUESTION = "What time is it in Tokyo?"
TOKYO = Call("get_current_time", {"timezone": "Asia/Tokyo"})
ANSWERS = [Say("Let me look.", (TOKYO,)), Say("It is late in Tokyo.")]
WIRES = {
    "chat": (("-m", "chat:x", "--base-url", "{url}/v1"), {}),
    "messages": (("-m", "anthropic:x"), {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "k"}),
    "responses": (("-m", "openai:x"), {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "k"}),
}
needs_npm = pytest.mark.skipif(not NPM.exists(), reason="npm servers are not here: `make test` installs them with Node")


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("wire", WIRES)
def test_every_model_api_gives_the_same_turn(tmp_path: Path, wire: str, streamed: bool) -> None:
    write_config(tmp_path, {"time": TIME})
    words, env = WIRES[wire]
    with model_endpoint(ANSWERS) as endpoint:
        ran = dial_chat(
            tmp_path,
            *(word.format(url=endpoint.url) for word in words),
            *(() if streamed else ("--no-stream",)),
            "--output",
            "json",
            QUESTION,
            **{name: value.format(url=endpoint.url) for name, value in env.items()},
        )
    assert ran.stderr == ""
    turn = json.loads(ran.stdout)
    [call] = turn["tool_calls"]
    assert (call["server"], call["tool"], call["arguments"], call["is_error"]) == (
        "time",
        "get_current_time",
        {"timezone": "Asia/Tokyo"},
        False,
    )
    assert json.loads(call["content"])["timezone"] == "Asia/Tokyo"
    assert (turn["text"], turn["stop_reason"], turn["depth"]) == ("It is late in Tokyo.", "answered", 1)
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"]) == (22, 14)
    assert [message["role"] for message in turn["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert turn["messages"][1]["content"] == "Let me look."
    assert ran.returncode == 0
    asked = [request.json for request in endpoint.requests]
    assert len(asked) == 2
    assert all(bool(body.get("stream")) is streamed for body in asked)
    assert "Asia/Tokyo" in json.dumps(asked[1])


def repository(folder: Path) -> Path:
    path = folder / "repository"
    path.mkdir()
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "-C", str(path)]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "The first commit"]):
        subprocess.run([*git, *words], check=True)
    return path


def real_servers(folder: Path) -> dict[str, Any]:
    files = folder / "files"
    files.mkdir()
    (files / "hello.txt").write_text("Hello from a file.")
    git = repository(folder)
    return {
        "time": TIME,
        "git": {"command": "mcp-server-git", "args": ["--repository", str(git)]},
        "everything": {"command": str(NPM / "mcp-server-everything")},
        "files": {"command": str(NPM / "mcp-server-filesystem"), "args": [str(files)]},
        "memory": {"command": str(NPM / "mcp-server-memory"), "env": {"MEMORY_FILE_PATH": str(folder / "memory.json")}},
    }


@needs_npm
@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not here")
@pytest.mark.anyio
async def test_real_servers_of_both_protocol_eras_work_together(tmp_path: Path) -> None:
    servers = real_servers(tmp_path)
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    calls = [
        ("get_current_time", {"timezone": "Asia/Tokyo"}),
        ("git_log", {"repo_path": str(tmp_path / "repository"), "max_count": 1}),
        ("echo", {"message": "hi"}),
        ("read_text_file", {"path": str(tmp_path / "files" / "hello.txt")}),
        ("create_entities", {"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]}),
    ]
    replies = [{"tool_calls": [{"name": name, "arguments": given} for name, given in calls]}, "Done."]
    with anyio.fail_after(100):
        async with DialClient.from_config(tmp_path / "servers.json", ScriptedProvider(replies)) as dial:
            assert {name: status.state for name, status in dial.servers.items()} == dict.fromkeys(
                servers, ServerState.READY
            )
            eras = {name: status.protocol_version for name, status in dial.servers.items()}
            turn = await dial.run([Message.user("Use them all.")])
    assert eras == {
        "time": "2026-07-28",
        "git": "2026-07-28",
        "everything": "2025-11-25",
        "files": "2025-11-25",
        "memory": "2025-11-25",
    }
    assert [(record.call.name, record.result.success) for record in turn.tool_calls] == [
        (name, True) for name, _ in calls
    ]
    time, git, echo, file, memory = (str(record.result.content) for record in turn.tool_calls)
    assert '"timezone": "Asia/Tokyo"' in time
    assert "The first commit" in git
    assert "hi" in echo
    assert file == "Hello from a file."
    assert "Ada" in memory
    assert turn.notes == ()


@needs_npm
def test_the_program_lists_the_tools_of_real_servers(tmp_path: Path) -> None:
    write_config(tmp_path, real_servers(tmp_path))
    tools = json.loads(dial_chat(tmp_path, "tools", "--json", DIAL_TEST_FRESH="1").stdout)
    by_server: dict[str, int] = {}
    for tool in tools:
        by_server[tool["server"]] = by_server.get(tool["server"], 0) + 1
        assert tool["input_schema"]["type"] == "object"
    assert by_server == {"time": 2, "git": 12, "everything": 13, "files": 14, "memory": 9}
    assert [tool["name"] for tool in tools] == sorted(tool["name"] for tool in tools)


def test_a_tool_of_a_real_server_can_be_called_by_a_command(tmp_path: Path) -> None:
    write_config(tmp_path, {"time": TIME})
    ran = dial_chat(tmp_path, "call", "get_current_time", '{"timezone": "Asia/Tokyo"}')
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["timezone"] == "Asia/Tokyo"
