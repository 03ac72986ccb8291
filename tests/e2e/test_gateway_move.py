"""``dial-chat servers import HOST --behind-gateway``, and ``--undo``, with the files of hosts."""

from __future__ import annotations

import json
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.inner import is_gateway
from tests.support.program import dial_chat

pytestmark = pytest.mark.once

CURSOR = """\
// my servers
{
  "mcpServers": {
    "time": {"command": "mcp-server-time"},
    // has a key
    "docs": {"url": "https://docs.example/mcp", "headers": {"X-Key": "very-secret-key"}},
    "dial": {"command": "dial-chat", "args": ["gateway"]},
    "off": {"command": "x", "disabled": true}
  }
}
"""
OWN = Path("home") / "xdg_config_home" / "dial-client" / "servers.json"


def write_cursor(folder: Path, text: str = CURSOR) -> Path:
    file = folder / "home" / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return file


def read_servers_of(file: Path) -> dict[str, Any]:
    text = "\n".join(line for line in file.read_text().splitlines() if not line.strip().startswith("//"))
    servers: dict[str, Any] = json.loads(text)["mcpServers"]
    return servers


def test_servers_move_behind_the_gateway_and_come_back_byte_for_byte(tmp_path: Path) -> None:
    file = write_cursor(tmp_path)
    words = ("servers", "import", "cursor", "--behind-gateway")
    unasked = dial_chat(tmp_path, *words)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert file.read_text() == CURSOR
    done = dial_chat(tmp_path, *words, "--yes")
    assert done.returncode == 0, done.stderr
    assert "  time: moves" in done.stdout
    assert "  dial: stays: it is the gateway itself" in done.stdout
    assert "  off: stays: it is disabled" in done.stdout
    assert "very-secret-key" not in done.stdout + done.stderr
    own = json.loads((tmp_path / OWN).read_text())["mcpServers"]
    assert set(own) == {"time", "docs"}
    assert own["docs"]["headers"] == {"X-Key": "very-secret-key"}
    servers = read_servers_of(file)
    assert set(servers) == {"dial", "off"}
    assert is_gateway(servers["dial"]) and Path(servers["dial"]["command"]).is_absolute()
    copies = list((tmp_path / "home").glob("**/host-files/*"))
    assert len(copies) == 2
    if sys.platform != "win32":
        assert {stat.S_IMODE(copy.stat().st_mode) for copy in copies} == {0o600}
    again = dial_chat(tmp_path, *words, "--yes")
    assert "There is nothing to move." in again.stdout
    undone = dial_chat(tmp_path, "servers", "import", "cursor", "--undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert file.read_text() == CURSOR
    assert not any(copy.exists() for copy in copies)
    assert dial_chat(tmp_path, "servers", "import", "cursor", "--undo", "--yes").returncode == 2


def test_what_the_host_wrote_since_the_move_stays_when_the_servers_come_back(tmp_path: Path) -> None:
    file = write_cursor(tmp_path)
    assert dial_chat(tmp_path, "servers", "import", "cursor", "--behind-gateway", "--yes").returncode == 0
    text = file.read_text().replace('"off":', '"new": {"command": "y"},\n    "off":')
    file.write_text(text)
    assert dial_chat(tmp_path, "servers", "import", "cursor", "--undo", "--yes").returncode == 0
    servers = read_servers_of(file)
    assert set(servers) == {"time", "docs", "new", "off"}
    assert servers["docs"]["headers"] == {"X-Key": "very-secret-key"}


def test_a_server_whose_name_is_taken_by_another_stays(tmp_path: Path) -> None:
    file = write_cursor(tmp_path)
    (tmp_path / OWN).parent.mkdir(parents=True)
    (tmp_path / OWN).write_text('{"mcpServers": {"time": {"command": "mine"}}}')
    words = ("servers", "import", "cursor", "--behind-gateway", "--yes")
    done = dial_chat(tmp_path, *words)
    assert "  time: stays: there is another server of this name (--replace)" in done.stdout
    assert "time" in read_servers_of(file)
    assert dial_chat(tmp_path, *words, "--replace").returncode == 0
    assert "time" not in read_servers_of(file)
    assert json.loads((tmp_path / OWN).read_text())["mcpServers"]["time"] == {"command": "mcp-server-time"}
    assert dial_chat(tmp_path, "servers", "import", "cursor", "--undo", "--yes").returncode == 0
    assert {"time", "docs", "off"} <= set(read_servers_of(file))


def test_one_server_of_codex_moves_into_a_configuration_that_the_entry_names(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".codex" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('# mine\n[mcp_servers.time]\ncommand = "mcp-server-time"\n\n[mcp_servers.other]\ncommand = "x"\n')
    mine = tmp_path / "mine.json"
    done = dial_chat(
        tmp_path, "servers", "import", "codex", "--behind-gateway", "--server", "time", "--yes", "-c", str(mine)
    )
    assert done.returncode == 0, done.stderr
    servers = tomllib.loads(file.read_text())["mcp_servers"]
    assert set(servers) == {"other", "dial"}
    assert servers["dial"]["args"][-3:] == ["gateway", "--config", str(mine)]
    assert set(json.loads(mine.read_text())["mcpServers"]) == {"time"}


def test_the_gateway_is_never_imported_into_its_own_configuration(tmp_path: Path) -> None:
    write_cursor(tmp_path)
    done = dial_chat(tmp_path, "servers", "import", "cursor", "--yes")
    assert "  dial: left out: it is the gateway of this program" in done.stdout
    assert "dial" not in json.loads((tmp_path / OWN).read_text())["mcpServers"]


def test_files_of_the_working_folder_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(CURSOR)
    done = dial_chat(tmp_path, "servers", "import", "cursor", "--behind-gateway", "--yes")
    assert (done.returncode, "name its file" in done.stderr) == (2, True)
    assert (tmp_path / ".cursor" / "mcp.json").read_text() == CURSOR
