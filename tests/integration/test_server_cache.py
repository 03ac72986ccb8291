"""The cache of servers: protocol era and tools; damaged or outdated entries are ignored."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import Icon, Tool

from dial_client import DialClient
from tests.inner import (
    REPROBE_SECONDS,
    Exit,
    ExitKind,
    JsonCache,
    Protocol,
    ProtocolChooser,
    ServerCache,
    ServerSettings,
    ServerState,
    Transport,
    compute_identity,
)
from tests.inner import SERVER_CACHE_MAX_BYTES as MAX_BYTES
from tests.support.fakes import tool_named
from tests.support.program import LONG
from tests.support.servers.tool_changes import build_changing_server, tool

CLOCK = ServerSettings("clock", Transport.STDIO, "clock-server", ("--zone", "UTC"), {"KEY": "s3cr3t"})
DIED = Exit(ExitKind.DIED)
TOOLS = (Tool(name="now", description="Tells the time.", input_schema={"type": "object", "x-odd": [1, {"a": None}]}),)


def memory(folder: Path, server: ServerSettings = CLOCK, at: float = 1_000.0) -> ServerCache:
    """Return the cache of another run of the program with the same folder, at time `at`."""
    return ServerCache(server, JsonCache(folder), lambda: at)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


# --- the cache -------------------------------------------------------------------------------------

OTHERS = {
    "command": replace(CLOCK, command="other"),
    "args": replace(CLOCK, args=("--zone", "CET")),
    "cwd": replace(CLOCK, cwd="/tmp"),
    "url": replace(CLOCK, command=None, url="https://example.test/mcp"),
    "names of env": replace(CLOCK, env={"OTHER": "s3cr3t"}),
    "names of headers": replace(CLOCK, headers={"Authorization": "x"}),
}
SAME = {
    "name": replace(CLOCK, name="watch"),
    "a value of env": replace(CLOCK, env={"KEY": "new"}),
    "approvals": replace(CLOCK, auto_approve=("*",), lazy=True, protocol=Protocol.LEGACY),
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=list(OTHERS))
def test_a_server_with_a_different_address_is_a_different_server(changed: ServerSettings) -> None:
    assert compute_identity(changed) != compute_identity(CLOCK)


@pytest.mark.parametrize("same", SAME.values(), ids=list(SAME))
def test_the_name_and_usage_settings_do_not_change_the_identity_of_a_server(same: ServerSettings) -> None:
    assert compute_identity(same) == compute_identity(CLOCK)


def test_the_cache_contains_no_secret(tmp_path: Path) -> None:
    server = replace(CLOCK, args=("--token", "hunter22"), headers={"Authorization": "Bearer t0ken"})
    memory(tmp_path, server).save(TOOLS, version="1", is_legacy=True)
    [path] = files(tmp_path)
    assert not [word for word in ("s3cr3t", "hunter22", "t0ken") if word in path.read_text() + path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no modes")
def test_the_cache_has_private_permissions(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        memory(tmp_path / "new").save(TOOLS, version="1", is_legacy=True)
    finally:
        os.umask(before)
    [file] = files(tmp_path / "new")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]


GARBAGE = {
    "nothing": b"",
    "half a file": b'{"form": 1, "legacy": true, "tools": [{"na',
    "bytes": b"\xff\xfe\x00",
    "another form": b'{"form": 99, "legacy": true, "tools": []}',
    "a list": b"[]",
    "a deep one": b"[" * 100_000,
    "a large one": b'{"form": 1, "legacy": true, "tools": [' + b" " * MAX_BYTES + b"]}",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=list(GARBAGE))
def test_an_unreadable_file_is_ignored(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / f"{compute_identity(CLOCK)}.json").write_bytes(garbage)
    known = memory(tmp_path)
    assert (known.is_legacy(), known.read_tools()) == (False, None)
    known.save(TOOLS, version="1", is_legacy=True)
    assert (known.is_legacy(), known.read_tools()) == (True, TOOLS), "and it is replaced"


ODD: list[dict[str, Any]] = [
    {"legacy": "yes", "since": 1.0},
    {"legacy": True},
    {"legacy": True, "since": "1"},
    {"legacy": True, "since": True},
    {"legacy": True, "since": 5_000.0},
    {"tools": {}},
    {"tools": "echo"},
]


@pytest.mark.parametrize("data", ODD, ids=str)
def test_invalid_values_in_a_file_are_ignored(tmp_path: Path, data: dict[str, Any]) -> None:
    JsonCache(tmp_path).write(CLOCK, data)
    known = memory(tmp_path)
    assert (known.is_legacy(), known.read_tools()) == (False, None)
    known.save(TOOLS, version="1", is_legacy=True)
    assert known.is_legacy()


def test_an_invalid_cached_tool_does_not_affect_valid_tools(tmp_path: Path) -> None:
    JsonCache(tmp_path).write(CLOCK, {"tools": [7, {"name": "bad"}, tool("good")]})
    known = memory(tmp_path).read_tools()
    assert known is not None
    assert [known_tool.name for known_tool in known] == ["good"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    known = memory(tmp_path / "file" / "below")
    known.save(TOOLS, version="1", is_legacy=True)
    assert not known.is_legacy()
    known.forget_legacy()
    assert (known.is_legacy(), known.read_tools()) == (False, None)


def test_the_size_of_the_folder_is_limited_and_the_oldest_file_is_deleted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dial_client.servers.server_cache.MAX_FILES", 3)
    cache = JsonCache(tmp_path)
    servers = [replace(CLOCK, command=f"server{n}") for n in range(5)]
    for age, server in enumerate(servers):
        ServerCache(server, cache, lambda: 1_000.0).save(TOOLS, version="1", is_legacy=True)
        os.utime(tmp_path / f"{compute_identity(server)}.json", (age, age))
    assert [memory(tmp_path, server).is_legacy() for server in servers] == [False, False, True, True, True]


def test_too_large_tools_are_not_cached_and_the_era_is(tmp_path: Path) -> None:
    known = memory(tmp_path)
    known.save([tool_named("big", description="x" * MAX_BYTES)], version="1", is_legacy=True)
    assert (known.is_legacy(), known.read_tools()) == (True, None)


def test_icons_are_cached_unless_pictures_would_fill_the_file(tmp_path: Path) -> None:
    for size, kept in ((1_000, True), (MAX_BYTES, False)):
        icon = Icon(src=f"data:image/png;base64,{'A' * size}")
        known = memory(tmp_path)
        known.save([TOOLS[0].model_copy(update={"icons": [icon]})], version="1", is_legacy=True)
        (cached,) = known.read_tools() or ()
        assert (cached.name, cached.icons) == ("now", [icon] if kept else None)


WRITER = """
import sys
from dial_client.servers.server_cache import JsonCache
from dial_client.settings.config_types import ServerSettings, Transport
cache, server = JsonCache(sys.argv[1]), ServerSettings("it", Transport.STDIO, "it")
for n in range(100):
    assert cache.write(server, {"by": sys.argv[2], "n": n, "text": sys.argv[2] * 50_000})
    said = cache.read(server)
    assert set(said["text"]) == {said["by"]}, "half of one, half of the other"
"""


def test_concurrent_writes_of_several_programs_leave_valid_files(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stderr=subprocess.PIPE, text=True)
        for name in "abc"
    ]
    assert [(writer.communicate(timeout=LONG)[1], writer.returncode) for writer in writers] == [("", 0)] * 3
    assert len(files(tmp_path)) == 1, "no file that was being written is left"


# --- eras -------------------------------------------------------------------------------------------


def test_a_legacy_server_is_probed_again_after_a_week(tmp_path: Path) -> None:
    memory(tmp_path, at=1_000.0).save(TOOLS, version="1", is_legacy=True)
    last = 1_000.0 + REPROBE_SECONDS
    assert memory(tmp_path, at=last - 1).is_legacy()
    memory(tmp_path, at=last - 1).save(TOOLS, version="1", is_legacy=True)
    assert not memory(tmp_path, at=last).is_legacy(), "being used does not make it younger"


def test_an_upgraded_server_is_probed_at_the_next_start(tmp_path: Path) -> None:
    memory(tmp_path).save(TOOLS, version="1", is_legacy=True)
    memory(tmp_path).save(TOOLS, version="2", is_legacy=True)
    assert not memory(tmp_path).is_legacy()
    memory(tmp_path).save(TOOLS, version="2", is_legacy=True)
    assert memory(tmp_path).is_legacy()


def test_a_configured_era_is_not_cached(tmp_path: Path) -> None:
    memory(tmp_path, replace(CLOCK, protocol=Protocol.LEGACY)).save(TOOLS, version="1", is_legacy=True)
    assert not memory(tmp_path).is_legacy()


def test_unchanged_values_are_not_written_again(tmp_path: Path) -> None:
    memory(tmp_path, at=1_000.0).save(TOOLS, version="1", is_legacy=True)
    before = files(tmp_path)[0].read_text()
    memory(tmp_path, at=2_000.0).save(TOOLS, version="1", is_legacy=True)
    assert files(tmp_path)[0].read_text() == before
    memory(tmp_path, at=1_000.0 + 2 * 24 * 3600).save(TOOLS, version="1", is_legacy=True)
    assert json.loads(files(tmp_path)[0].read_text())["written"] > 1_000.0, "but it is kept from growing old"


async def era_of(server: ServerSettings, folder: Path | None) -> str | None:
    """Start a server with the cache of a folder, and return the negotiated protocol version."""
    with anyio.fail_after(LONG):
        async with DialClient(servers={"it": server}, cache_dir=folder or False) as dial:
            assert dial.servers["it"].state is ServerState.READY, dial.servers["it"].error
            assert dial.servers["it"].restarts == 0
            return dial.servers["it"].protocol_version


def test_a_wrong_cached_era_is_used_only_once(tmp_path: Path) -> None:
    memory(tmp_path).save(TOOLS, version="1", is_legacy=True)
    protocols = ProtocolChooser(CLOCK, memory(tmp_path), LONG)
    assert (protocols.choose(), protocols.record_exit(DIED)) == (Protocol.LEGACY, True)
    assert (protocols.choose(), protocols.record_exit(DIED)) == (Protocol.AUTO, False)
    assert not memory(tmp_path).is_legacy()
    assert memory(tmp_path).read_tools() == TOOLS, "its tools are remembered all the same"


def test_a_wrong_cached_era_that_used_up_the_startup_time_is_corrected_at_the_next_start(tmp_path: Path) -> None:
    memory(tmp_path).save(TOOLS, version="1", is_legacy=True)
    protocols = ProtocolChooser(CLOCK, memory(tmp_path), 0.0)
    assert (protocols.choose(), protocols.record_exit(DIED)) == (Protocol.LEGACY, False)
    assert not memory(tmp_path).is_legacy()


@pytest.mark.anyio
async def test_a_legacy_server_is_probed_only_at_its_first_start(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path)
    for asked in (["start", "server/discover", "initialize", "tools/list"], ["start", "initialize", "tools/list"]):
        assert await era_of(server.entry(), tmp_path / "memory") == "2025-11-25"
        assert server.asked() == asked


@pytest.mark.anyio
async def test_without_a_cache_folder_nothing_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    server = build_changing_server(tmp_path)
    for _ in range(2):
        await era_of(server.entry(), None)
        assert "server/discover" in server.asked()
    assert not (tmp_path / "home").exists()


@pytest.mark.anyio
async def test_an_outdated_cached_era_is_corrected(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path)
    await era_of(server.entry(), tmp_path / "memory")
    server.write_config(era="new", version="2")
    server.asked()
    assert await era_of(server.entry(), tmp_path / "memory") == "2026-07-28"
    assert server.asked()[:4] == ["start", "initialize", "start", "server/discover"]
    assert await era_of(server.entry(), tmp_path / "memory") == "2026-07-28"
    assert server.asked()[:2] == ["start", "server/discover"], "and stays healed"


@pytest.mark.anyio
async def test_a_cached_server_that_no_longer_starts_is_failed(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path)
    await era_of(server.entry(), tmp_path / "memory")
    server.write_config(dies=True)
    async with DialClient(servers={"it": server.entry()}, cache_dir=tmp_path / "memory") as dial:
        assert dial.servers["it"].state is ServerState.FAILED
        assert "no license" in (dial.servers["it"].error or "")
