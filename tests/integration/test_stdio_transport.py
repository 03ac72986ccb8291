"""The stdio transport: environment and program of a server process, its output, and its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp_types import JSONRPCError, JSONRPCResponse

from tests.inner import (
    MAX_LINES,
    LineSplitter,
    LineTooLong,
    ServerGone,
    ServerProcess,
    ServerSettings,
    ServerStartError,
    ServerState,
    StderrTail,
    StdioTransport,
    Transport,
    WindowsStdioTransport,
    build_environment,
    find_program,
    parse_messages,
)
from tests.support.program import LONG
from tests.support.servers.launch import call_for_text, connection, is_alive, raw, read_requests, script, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there the SDK runs the process")
anywhere = pytest.mark.anyio


# Environment and program


def test_only_listed_environment_variables_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD", "UV_PUBLISH_TOKEN", "MY_PROXY"):
        monkeypatch.setenv(name, "secret")
    useful = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "https_proxy", "NO_PROXY", "UV_INDEX_URL", "npm_config_registry")
    for name in (*useful, "VIRTUAL_ENV", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "PATH"):
        monkeypatch.setenv(name, "useful")
    monkeypatch.setenv("TERM", "() { :; }; echo pwned")
    given = build_environment({"TOKEN": "mine", "PATH": "/my/bin"})
    assert "secret" not in given.values()
    assert "TERM" not in given
    assert {given[name] for name in useful} == {"useful"}
    assert (given["TOKEN"], given["PATH"]) == ("mine", "/my/bin")


@anywhere
async def test_a_real_child_sees_no_secret_of_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "planted-secret")
    async with connection(raw("ShowsItself", env={"GREETING": "mine"}, cwd=str(tmp_path))) as server:
        seen = json.loads(await call_for_text(server))
    assert "planted-secret" not in seen["env"].values()
    assert seen["env"]["GREETING"] == "mine"
    assert seen["cwd"] == str(tmp_path)


PASSED_ON_WITHOUT_USER = {
    "HTTPS_PROXY": ("http://me:planted-secret@proxy.test:3128", "http://proxy.test:3128"),
    "http_proxy": ("me:planted-secret@proxy.test:3128", "proxy.test:3128"),
    "ALL_PROXY": ("socks5h://me:planted@secret@proxy.test/", "socks5h://proxy.test/"),
    "UV_INDEX_URL": ("https://planted-secret@index.test/simple", "https://index.test/simple"),
    "UV_DEFAULT_INDEX": ("own=https://me:planted-secret@index.test/a@b", "own=https://index.test/a@b"),
    "UV_EXTRA_INDEX_URL": ("https://a:planted-secret@a.test https://b:x@b.test", "https://a.test https://b.test"),
    "npm_config_registry": ("https://me:planted-secret@npm.test/", "https://npm.test/"),
    "NPM_CONFIG_HTTPS_PROXY": ("http://me:planted-secret@proxy.test", "http://proxy.test"),
    "UV_CACHE_DIR": ("/caches/uv", "/caches/uv"),
}
CREDENTIALS = (
    *("UV_INDEX_OWN_PASSWORD", "UV_INDEX_OWN_USERNAME", "UV_PUBLISH_TOKEN", "UV_HTTP_AUTH", "UV_S3_SECRET"),
    *("npm_config__auth", "npm_config__authToken", "npm_config__password", "NPM_CONFIG_OTP", "NPM_CONFIG_KEY"),
    *("npm_config_//npm.test/:_authToken", "PIP_INDEX_URL", "PIP_PROXY", "XDG_TOKEN"),
)


@anywhere
async def test_a_real_child_sees_only_those_proxy_and_index_credentials_that_its_entry_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, (value, _) in PASSED_ON_WITHOUT_USER.items():
        monkeypatch.setenv(name, value)
    for name in CREDENTIALS:
        monkeypatch.setenv(name, "planted-secret")
    own = {"UV_INDEX_MINE_PASSWORD": "yes", "HTTP_PROXY": "http://me:mine@proxy.test"}
    process = ServerProcess(raw(env=own, command="env", args=()))
    printed = b""
    while chunk := await process.read():
        printed += chunk
    await process.stop()
    process.close()
    seen = dict(line.split("=", 1) for line in printed.decode().splitlines() if "=" in line)
    assert "secret" not in printed.decode()
    assert {name: seen[name] for name in PASSED_ON_WITHOUT_USER} == {
        name: value for name, (_, value) in PASSED_ON_WITHOUT_USER.items()
    }
    assert not seen.keys() & set(CREDENTIALS)
    assert own.items() <= seen.items()


def test_a_program_is_searched_in_path_and_then_beside_the_interpreter(tmp_path: Path) -> None:
    mine = tmp_path / "mcp-server-time"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    assert find_program("it", "mcp-server-time", str(tmp_path), None) == str(mine)
    # A folder that cannot be read, such as another user's folder, is skipped.
    assert find_program("it", "mcp-server-time", f"/{'n' * 300}{os.pathsep}{tmp_path}", None) == str(mine)
    assert find_program("it", "mcp-server-time", "/nowhere", None) == str(Path(sys.executable).parent / mine.name)
    assert find_program("it", "./mcp-server-time", "/nowhere", str(tmp_path)) == str(mine)


@pytest.mark.parametrize("path", [".", "", "bin", f".{os.pathsep}bin"])
def test_a_program_in_the_working_folder_is_not_found(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for folder in (tmp_path, tmp_path / "bin"):
        (folder / "npx-of-a-stranger.exe").touch(0o755)
    monkeypatch.chdir(tmp_path)
    for search in (path, f"{os.pathsep}{path}", f"/nowhere{os.pathsep}{path}"):
        with pytest.raises(ServerStartError, match="was not found"):
            find_program("it", "npx-of-a-stranger.exe", search, None)
    installed = os.pathsep.join((path, str(tmp_path / "bin")))
    assert find_program("it", "npx-of-a-stranger.exe", installed, None) == str(tmp_path / "bin/npx-of-a-stranger.exe")


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("no-such-server", "the command 'no-such-server' was not found"),
        ("./missing", "there is no file './missing' to run"),
        ("./plain", "the file './plain' is not executable"),
        ("./broken", "cannot run './broken': Exec format error"),
        ("./nul\0", "there is no file './nul\\x00' to run"),
        ("n" * 300, f"the command '{'n' * 300}' was not found"),
        (f"./{'n' * 300}", f"there is no file './{'n' * 300}' to run"),
    ],
)
@anywhere
async def test_the_error_names_a_program_that_cannot_run(command: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "broken").write_bytes(b"\x7fnot a program")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(ServerStartError) as caught:
        ServerProcess(raw(command=command, args=(), cwd=str(tmp_path)))
    assert caught.value.problem.startswith(problem)


@anywhere
async def test_the_error_names_a_missing_folder() -> None:
    with pytest.raises(ServerStartError, match=r"the folder '/no/such' \(cwd\) does not exist"):
        ServerProcess(raw(cwd="/no/such"))


# Output


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_lines_do_not_depend_on_the_split_of_the_stream(pieces: list[bytes], size: int) -> None:
    whole = b"".join(pieces)
    splitter = LineSplitter(1_000)
    lines = [line for start in range(0, len(whole), size) for line in splitter.feed(whole[start : start + size])]
    assert [*lines, splitter.take_rest()] == whole.split(b"\n")


def test_a_line_above_the_limit_is_an_error() -> None:
    assert LineSplitter(4).feed(b"1234\n1234") == [b"1234"]
    for chunks in ((b"12345\n",), (b"123", b"45")):
        splitter = LineSplitter(4)
        with pytest.raises(LineTooLong):
            for chunk in chunks:
                splitter.feed(chunk)


ANSWER = b'{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}'


@pytest.mark.parametrize(
    ("line", "results"),
    [
        (ANSWER, [{"a": 1}]),
        (ANSWER + b"\r", [{"a": 1}]),
        (b"\xef\xbb\xbf" + ANSWER, [{"a": 1}]),
        (b"Loading... " + ANSWER, [{"a": 1}]),
        (b"[INFO] " + ANSWER + b" sent", [{"a": 1}]),
        (b'{"id": 1, "result": {"a": 2}}', [{"a": 2}]),
        (b'{"jsonrpc": "1.0", "id": 1, "result": {}}', [{}]),
        (b"[" + ANSWER + b", 7, " + ANSWER + b"]", [{"a": 1}, {"a": 1}]),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"a": "caf\xe9"}}', [{"a": "caf\N{REPLACEMENT CHARACTER}"}]),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"a": "\\ud800"}}', [{"a": "?"}]),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"a": "\\ud83d\\ude00"}}', [{"a": "\N{GRINNING FACE}"}]),
        (b"", []),
        (b"Welcome!", []),
        (b"[1, 2]", []),
        (b'{"level": "info"}', []),
        (b'{"method": 5, "id": 1}', []),
        (b'{"id": true, "result": 5}', []),
        (b"[" * 100_000, []),
        (b'{"a":' * 100_000, []),
    ],
)
def test_messages_are_found_in_malformed_lines(line: bytes, results: list[Any]) -> None:
    found = [message.message for message in parse_messages(line)]
    assert [message.result for message in found if isinstance(message, JSONRPCResponse)] == results
    assert len(found) == len(results)


@pytest.mark.parametrize("line", [b'{"id": 3, "result": 5}', b'{"id": 3, "error": {}}', b'{"id": 3}'])
def test_an_invalid_json_rpc_response_fails_its_request(line: bytes) -> None:
    (message,) = parse_messages(line)
    assert isinstance(message.message, JSONRPCError)
    assert message.message.id == 3


@anywhere
async def test_text_on_standard_output_is_skipped_with_one_note() -> None:
    async with connection(raw("Chatty")) as server:
        assert await call_for_text(server, a=1) == '{"a": 1}'
        assert await call_for_text(server, a=2) == '{"a": 2}'
        assert len(server.status.notes) == 1
        assert "not MCP messages" in server.status.notes[0]


@anywhere
async def test_a_last_message_without_a_line_feed_is_read() -> None:
    async with connection(raw("NoNewline")) as server:
        assert server.status.protocol_version == "2025-11-25"
        assert await call_for_text(server) == "the end"


@anywhere
async def test_invalid_utf_8_is_replaced() -> None:
    async with connection(raw("BadText")) as server:
        assert await call_for_text(server) == "caf\N{REPLACEMENT CHARACTER} ?!"


@anywhere
async def test_a_result_of_five_megabytes_arrives_completely() -> None:
    async with connection(raw("Big")) as server:
        assert len(await call_for_text(server, size=5_000_000)) == 5_000_000


@anywhere
async def test_a_flood_on_standard_error_neither_blocks_nor_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    async with connection(raw("FloodsStderr")) as server:
        assert await call_for_text(server, a=1) == '{"a": 1}'
        await until(lambda: server.status.stderr[-1:] == ("the last line",))
        assert len(server.status.stderr) == MAX_LINES
    assert capfd.readouterr().err == ""


@asynccontextmanager
async def a_client(behaviour: str, notes: list[str]) -> AsyncIterator[tuple[Client, StdioTransport]]:
    process = ServerProcess(raw(behaviour))
    transport = StdioTransport(process, notes.append)
    try:
        async with Client(transport, mode="legacy") as client:
            yield client, transport
    finally:
        await process.stop()
        process.close()


@anywhere
async def test_a_message_beyond_the_limit_ends_the_connection_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dial_client.servers.transports.stdio.MAX_MESSAGE_BYTES", 100_000)
    async with a_client("Big", []) as (client, transport):
        with anyio.fail_after(LONG):
            assert not (await client.call_tool("echo", {"size": 90_000})).is_error
            with pytest.raises(MCPError, match="Connection closed"):
                await client.call_tool("echo", {"size": 200_000})
        assert await transport.explain_end() == "the server sent a message of more than 100,000 bytes"


@anywhere
async def test_arguments_that_cannot_be_serialized_fail_only_their_call() -> None:
    async with a_client("Server", []) as (client, _):
        with anyio.fail_after(LONG):
            with pytest.raises(MCPError, match="cannot be written as JSON"):
                await client.call_tool("echo", {"text": "\ud800"})
            assert not (await client.call_tool("echo", {"text": "fine"})).is_error


@pytest.mark.parametrize("which", ["output", "input"])
@anywhere
async def test_a_server_that_closes_a_pipe_counts_as_ended(which: str) -> None:
    async with connection(raw("ClosesItsPipes")) as server:
        with pytest.raises(ServerGone, match=f"the server closed its {which} and said nothing"):
            assert await call_for_text(server, which=which) == "closed"
            await call_for_text(server)  # a closed input is detected by the next message
        assert server.status.state is ServerState.RESTARTING


# End of the process


@anywhere
async def test_child_processes_of_a_server_are_ended() -> None:
    async with connection(raw("LeavesChild")) as server:
        child = int(await call_for_text(server))
        assert is_alive(child)
    await until(lambda: not is_alive(child))


@anywhere
async def test_the_end_of_a_server_is_detected_even_if_its_child_holds_the_pipe() -> None:
    async with connection(raw("DiesBeforeChild")) as server:
        with pytest.raises(ServerGone, match="ended by SIGKILL"):
            await call_for_text(server)


@anywhere
async def test_all_messages_that_an_ended_server_wrote_are_read_however_late() -> None:
    notes: list[str] = []
    code = """for _ in range(40): print('{"jsonrpc": "2.0", "method": "notifications/message"}')"""
    process = ServerProcess(ServerSettings("it", Transport.STDIO, command=sys.executable, args=("-c", code)))
    try:
        with anyio.fail_after(LONG):
            async with StdioTransport(process, notes.append) as (incoming, _):
                await process.wait()
                await anyio.sleep(1.0)  # longer than the transport waits for the output to end
                assert len([message async for message in incoming]) == 40
    finally:
        process.close()


@anywhere
async def test_a_server_that_ignores_signals_is_killed() -> None:
    async with connection(raw("Stubborn")) as server:
        process = int(await call_for_text(server))
    assert not is_alive(process)


@anywhere
async def test_cancelling_a_start_ends_the_process() -> None:
    process = ServerProcess(raw("Hangs"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await process.stop()
    process.close()
    assert not is_alive(process.pid)


def test_processes_left_running_end_with_the_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "host.py"
    program.write_text(
        "import anyio\nfrom dial_client.servers.transports.server_process import ServerProcess\n"
        "from tests.support.servers.launch import raw\nasync def main():\n"
        "    print(ServerProcess(raw('Stubborn')).pid)\nanyio.run(main)\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert not is_alive(int(run.stdout))


@anywhere
async def test_the_transport_works_with_a_server_of_the_sdk() -> None:
    async with connection(script("sdk.py", "stdio")) as server:
        assert server.status.protocol_version == "2026-07-28"
        assert await call_for_text(server, text="hello") == "hello"


@anywhere
async def test_the_windows_transport_works_on_posix(capfd: pytest.CaptureFixture[str]) -> None:
    tail = StderrTail()
    async with Client(WindowsStdioTransport(raw("FloodsStderr"), tail), mode="legacy") as client:
        with anyio.fail_after(LONG):
            assert not (await client.call_tool("echo", {})).is_error
    assert tail.last == "the last line"
    assert capfd.readouterr().err == ""
    with pytest.raises(ServerStartError, match="'no-such-server' was not found"):
        await WindowsStdioTransport(raw(command="no-such-server"), tail).__aenter__()


@anywhere
async def test_only_the_handshake_and_one_list_request_are_sent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connection(raw("Server", "--log", log)) as server:
        await call_for_text(server)
    assert read_requests(log) == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
