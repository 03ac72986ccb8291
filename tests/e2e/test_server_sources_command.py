"""Adding servers from links, bundles and the MCP registry; the registry runs on loopback."""

from __future__ import annotations

import base64
import json
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.json_service import json_service
from tests.support.program import dial_chat

pytestmark = pytest.mark.once

WEATHER = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.user/weather",
    "description": "Weather of the world.\x1b[2J",
    "version": "1.0.2",
    "remotes": [{"type": "streamable-http", "url": "https://weather.example/mcp"}],
}
OFFICIAL = "io.modelcontextprotocol.registry/official"
ANSWER = {"server": WEATHER, "_meta": {OFFICIAL: {"status": "active"}}}
DEPRECATED = {"status": "deprecated", "statusMessage": "Use weather.", "isLatest": True}
OLD = {"server": {**WEATHER, "name": "io.github.user/old"}, "_meta": {OFFICIAL: DEPRECATED}}
LIST = {"servers": [ANSWER, OLD, {"odd": 1}], "metadata": {"count": 3, "nextCursor": "io.github.user/old:1.0.2"}}


def test_the_registry_can_be_searched_and_its_servers_added(tmp_path: Path) -> None:
    path = "/v0.1/servers/io.github.user%2Fweather/versions/latest"
    with json_service({"/v0.1/servers": LIST, path: ANSWER}) as registry:
        found = dial_chat(tmp_path, "servers", "search", "wea ther", "--registry", registry.url)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout.splitlines()[:2] == [
            "io.github.user/weather  1.0.2  (remote)",
            "    Weather of the world.",
        ], found.stdout
        assert found.stdout.splitlines()[4:] == [
            "    the registry calls it deprecated: Use weather.",
            "There are more: only the first 3 are listed; use a longer search term.",
            "dial-chat servers add NAME adds a server.",
        ]
        assert registry.requests == ["/v0.1/servers?search=wea%20ther&version=latest&limit=30"]
        listed = json.loads(
            dial_chat(tmp_path, "servers", "search", "w", "--json", DIAL_REGISTRY_URL=registry.url).stdout
        )
        assert [server["name"] for server in listed] == ["io.github.user/weather", "io.github.user/old"]
        words = ("servers", "add", "io.github.user/weather")
        unasked = dial_chat(tmp_path, *words, DIAL_REGISTRY_URL=registry.url)
        assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
        assert '"https://weather.example/mcp"' in unasked.stdout
        assert dial_chat(tmp_path, *words, "--yes", "--folder", DIAL_REGISTRY_URL=registry.url).returncode == 0
        missing = dial_chat(tmp_path, "servers", "add", "io.github.user/wether", DIAL_REGISTRY_URL=registry.url)
        assert (missing.returncode, "has no server" in missing.stderr) == (2, True)
    servers = json.loads((tmp_path / "servers.json").read_text())["mcpServers"]
    assert servers == {"weather": {"type": "http", "url": "https://weather.example/mcp"}}


def test_a_registry_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    offline = dial_chat(tmp_path, "servers", "search", "x", "--registry", "http://127.0.0.1:9")
    assert (offline.returncode, "cannot be reached" in offline.stderr) == (1, True)
    assert "offline?" in offline.stderr
    with json_service({"/v0.1/servers": b"<html>"}) as odd:
        answer = dial_chat(tmp_path, "servers", "search", "x", "--registry", odd.url)
    assert (answer.returncode, "does not answer as an MCP registry" in answer.stderr) == (1, True)
    with json_service({"/v0.1/servers": b" " * 9_000_000}) as endless:
        long = dial_chat(tmp_path, "servers", "search", "x", "--registry", endless.url)
    assert (long.returncode, "is too long" in long.stderr) == (1, True)
    wrong = dial_chat(tmp_path, "servers", "search", "x", "--registry", "registry.example")
    assert (wrong.returncode, "not the URL of a registry" in wrong.stderr) == (2, True)


def test_a_link_and_a_server_json_are_added(tmp_path: Path) -> None:
    config = base64.b64encode(b'{"command": "mcp-server-time"}').decode()
    link = f"cursor://anysphere.cursor-deeplink/mcp/install?name=clock&config={config}"
    assert "added clock in" in dial_chat(tmp_path, "servers", "add", link, "--yes", "--folder").stdout
    (tmp_path / "server.json").write_text(json.dumps(WEATHER))
    assert "added mine in" in dial_chat(tmp_path, "servers", "add", "mine", "server.json", "--yes").stdout
    assert "clock: ready" in dial_chat(tmp_path, "servers", "test", "clock").stdout


SERVER = """
import os
from mcp.server.mcpserver import MCPServer
server = MCPServer("bundled")
@server.tool()
def greet() -> str:
    return os.environ["GREETING"]
server.run()
"""


def test_a_bundle_is_unpacked_added_and_started(tmp_path: Path) -> None:
    manifest = {
        "manifest_version": "0.3",
        "name": "greeter",
        "version": "1.0.0",
        "description": "It greets.",
        "server": {
            "type": "python",
            "entry_point": "main.py",
            "mcp_config": {
                "command": sys.executable,
                "args": ["-W", "ignore", "${__dirname}/main.py"],
                "env": {"GREETING": "${user_config.greeting}"},
            },
        },
        "user_config": {"greeting": {"type": "string", "title": "Greeting", "required": True}},
    }
    with zipfile.ZipFile(tmp_path / "greeter.mcpb", "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("main.py", SERVER)
    words = ("servers", "add", "greeter.mcpb", "--yes", "--folder")
    incomplete = dial_chat(tmp_path, *words)
    assert (incomplete.returncode, "--set greeting=VALUE" in incomplete.stderr) == (2, True)
    unknown = dial_chat(tmp_path, *words, "--set", "greetin=x")
    assert (unknown.returncode, 'did you mean "greeting"' in unknown.stderr) == (2, True)
    assert not list(tmp_path.glob("home/**/bundles"))
    done = dial_chat(tmp_path, *words, "--set", "greeting=Good morning")
    assert done.returncode == 0, done.stderr
    assert dial_chat(tmp_path, "call", "greet").stdout == "Good morning\n"
