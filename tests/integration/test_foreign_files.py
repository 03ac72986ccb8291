"""Foreign or damaged files: recordings, conversations, stored tokens, server caches, tool pins and model weights."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

import dial_client
from dial_client import ConversationManager, DialClient
from dial_client.extend import FolderLogins
from dial_client.testing import ScriptedProvider
from tests.inner import TOKEN_STORAGE_MAX_BYTES as MAX_BYTES
from tests.inner import (
    ConfigError,
    JsonCache,
    MemoryStore,
    Message,
    ServerCache,
    ServerSettings,
    TokenRecord,
    TokenStorage,
    ToolPins,
    ToolSpec,
    Transport,
    Weights,
    read_file,
    weights,
)
from tests.integration.test_foreign_rows import MESSAGES, nested
from tests.support.oauth_logins import find_stored_logins

HEAD = {"recording": 1, "by": "dial-client", "provider": "chat"}
CALLED = {"server": "it", "tool": "echo", "arguments": {}}
SERVER = ServerSettings("it", Transport.HTTP, url="https://it.test/mcp")


def recording(folder: Path, *lines: Any, **head: Any) -> Path:
    file = folder / "recording.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in (HEAD | head, *lines)))
    return file


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(?:a|a)*b", "a*a*a*a*a*b", "(?=a)*", r"\w+", "[", "(", "a{1,9999}", "(a)(b)" * 100, "x" * 10_000],
)
def test_a_recording_with_a_slow_regular_expression_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"flags\.tool_name_re"):
        read_file(recording(tmp_path, flags={"tool_name_re": pattern}))


@pytest.mark.parametrize(
    "pattern", ["[a-zA-Z_][a-zA-Z0-9_.-]*", "[a-zA-Z][a-zA-Z0-9_-]*", "^[a-zA-Z0-9_-]{1,64}$", "[a-z]+"]
)
def test_regular_expressions_of_real_endpoints_are_accepted(pattern: str, tmp_path: Path) -> None:
    began = time.process_time()
    provider = ScriptedProvider.from_file(recording(tmp_path, flags={"tool_name_re": pattern}))
    provider._names._is_accepted("a" * 10_000 + "!")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "flags", [{"tool_name_len": 0}, {"tool_name_len": -1}, {"tool_name_len": 10**9}, {"reasoning_in": [7]}]
)
def test_a_recording_with_invalid_flags_is_refused(flags: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flags"):
        read_file(recording(tmp_path, flags=flags))


@pytest.mark.parametrize("missing", ["server", "tool", "arguments"])
def test_an_incomplete_recorded_call_is_an_error(missing: str, tmp_path: Path) -> None:
    called = {name: value for name, value in CALLED.items() if name != missing}
    with pytest.raises(ConfigError, match=rf"line 2\.{missing}"):
        read_file(recording(tmp_path, {"called": called, "result": {}}))


@pytest.mark.parametrize("wait", [-1, math.nan, math.inf])
def test_a_recorded_retry_after_is_a_finite_number_of_seconds(wait: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retry_after"):
        read_file(recording(tmp_path, {"replies": [{"error": {"message": "x", "retry_after": wait}}]}))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "result", [{}, {"content": 7}, {"content": [{"type": "text", "text": 7}]}, {"content": [{"type": 1}]}]
)
async def test_an_invalid_recorded_result_is_a_failed_call(result: dict[str, Any], tmp_path: Path) -> None:
    tool = {"server": "it", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    replies = {"replies": [{"tool_calls": [{"name": "echo", "arguments": {}}]}, "Done."]}
    file = recording(tmp_path, tool, replies, {"called": CALLED, "result": result})
    async with DialClient(ScriptedProvider.from_file(file)) as dial:
        turn = await dial.run([Message.user("Echo!")])
    assert turn.text == "Done."
    assert [record.result.success for record in turn.tool_calls] == [False]


@pytest.mark.anyio
@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
async def test_an_import_of_any_content_is_a_conversation_or_an_error(message: str) -> None:
    async with DialClient(ScriptedProvider(["Hello."] * 3)) as dial:
        manager = ConversationManager(dial, MemoryStore())
        for text in (message, f"[{message}]", f'{{"messages": [{message}], "title": 7}}'):
            try:
                made = await manager.import_json(text)
            except ConfigError:
                continue
            assert (await manager.chat(made.id, "Hi")).text
            await manager.export(made.id)
            await manager.delete(made.id)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", "null", nested(100_000), '{"tokens": 7}',
        '{"tokens": {"access_token": "x"}, "expires_at": "soon"}',
        '{"issuer": ["https://a.test"]}', '{"tokens": {"access_token": "' + "x" * MAX_BYTES + '"}}', "\x00", "\ud800",
    ],
    ids=len,
)  # fmt: skip
async def test_unreadable_stored_tokens_are_ignored(text: str, tmp_path: Path) -> None:
    storage = TokenStorage(SERVER, FolderLogins(tmp_path / "logins"))
    await storage.save(TokenRecord())
    [file] = find_stored_logins(tmp_path)
    file.write_bytes(text.encode(errors="surrogatepass"))
    assert await storage.load() == TokenRecord()


@pytest.mark.anyio
@pytest.mark.parametrize("until", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_stored_tokens_with_an_invalid_expiry_are_expired(until: str, tmp_path: Path) -> None:
    storage = TokenStorage(SERVER, FolderLogins(tmp_path / "logins"))
    await storage.save(TokenRecord())
    [file] = find_stored_logins(tmp_path)
    file.write_text(f'{{"tokens": {{"access_token": "x"}}, "expires_at": {until}}}')
    assert (await storage.load()).expires_at == 0.0


@pytest.mark.parametrize("since", [-(10**400), 10**400, math.nan, -math.inf, True, "1", [1]])
def test_an_invalid_time_in_the_server_cache_is_ignored(since: Any, tmp_path: Path) -> None:
    JsonCache(tmp_path).write(SERVER, {"legacy": True, "since": since, "written": since})
    memory = ServerCache(SERVER, JsonCache(tmp_path))
    assert not memory.is_legacy()
    memory.save([], version="1", is_legacy=True)
    assert memory.is_legacy()


def test_comparing_a_huge_pinned_tool_is_fast(tmp_path: Path) -> None:
    cache = JsonCache(tmp_path)
    cache.write(SERVER, {"tools": {"echo": {"sha256": 7, "text": "ab\n" * 300_000}, "other": 7}})
    tool = ToolSpec("echo", "\n".join("ab" * (at % 7) for at in range(2_000)), {}, server="it", tool="echo")
    began = time.process_time()
    assert "too long to be kept" in ToolPins(cache, {"it": SERVER}).describe_change(tool)
    assert time.process_time() - began < 5


SAFE_OF_YAML = {"MarkedYAMLError", "YAMLError", "SafeLoader", "safe_dump"}
"""Names that may be imported from yaml: its loader creates only plain values, and its writer writes only these."""


def test_no_module_can_execute_data() -> None:
    for file in Path(dial_client.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "yaml":
                assert {alias.name for alias in node.names} <= SAFE_OF_YAML, file.name
                continue
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"pickle", "marshal", "shelve", "dill", "yaml", "joblib"} & {
                name.partition(".")[0] for name in modules
            }
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), f"{file.name}:{node.lineno}"


@pytest.mark.parametrize("memo", ["", "{", "[]", "null", nested(100_000), '{"sha256": NaN}'], ids=len)
def test_an_invalid_checksum_file_does_not_mark_weights_as_verified(memo: str, tmp_path: Path) -> None:
    downloaded = Weights("model.gguf", 5, hashlib.sha256(b"right").hexdigest(), "", "", ())
    file = tmp_path / downloaded.file
    file.write_bytes(b"wrong")
    weights._build_memo_path(file).write_text(memo)
    assert not weights._is_known(file, downloaded)
