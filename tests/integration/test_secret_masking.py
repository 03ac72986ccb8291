"""Secrets of a server entry are masked in everything that the server sends or prints."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from dial_client import DialClient, Message, ServerError
from dial_client.testing import ScriptedProvider
from tests.inner import (
    MAX_LINE_BYTES,
    Callbacks,
    SecretMask,
    ServerLog,
    ServerSettings,
    StderrTail,
    Transport,
    find_secrets,
)
from tests.support.clients import call
from tests.support.oauth_logins import Person, redirect_user_data
from tests.support.program import dial_chat, write_config
from tests.support.servers.launch import HERE, call_for_text, connection, web, web_server
from tests.support.servers.oauth_server import guarded

SECRET = 'pa55/"wörd+of=mine'


def leaking(**env: str) -> dict[str, Any]:
    """Return the entry of a server that prints its variable LEAK."""
    return {"command": sys.executable, "args": ["-W", "ignore", str(HERE / "secret_leak.py")], "env": env}


def has_secret(text: str) -> bool:
    return any(form in text for form in ("pa55", "rd+of=mine", "rd%2Bof", "cGE1NS8", "cmQrb2Y9bWlu"))


# Output of a server


@pytest.mark.anyio
async def test_no_secret_reaches_the_model_the_program_or_a_recording(tmp_path: Path) -> None:
    logs: list[ServerLog] = []
    replies = [
        *({"tool_calls": [call("leak", how=how)["tool_calls"][0]]} for how in ("well", "failure", "error")),
        "done",
    ]
    model = ScriptedProvider(replies)
    recording = tmp_path / "recorded.json"
    servers = {"it": leaking(LEAK=SECRET, TOKEN=SECRET)}
    async with DialClient(
        model, servers=servers, callbacks=Callbacks(on_log=logs.append, log_level="debug"), record=recording
    ) as dial:
        shown: list[Any] = [event async for event in dial.stream([Message.user("go on")])]
        shown += [dial.servers["it"], dial.tools, dial.notes, await dial.call("leak", {})]
        shown += [await dial.resources.list(), await dial.resources.read("it", "leak://1")]
        shown += [await dial.prompts.list(), await dial.prompts.get("it", "leak"), logs, model.requests]
    text = f"{shown}{recording.read_text()}"
    assert text.count("[secret of it]") > 20
    assert not has_secret(text)
    assert logs


@pytest.mark.anyio
async def test_errors_causes_and_last_output_contain_no_secrets() -> None:
    async with connection(leaking_settings()) as server:
        with pytest.raises(ServerError) as refused:
            await call_for_text(server, "leak", how="error")
        with pytest.raises(ServerError) as lost:
            await call_for_text(server, "leak", how="death")
        status = server.status
    for error in (refused.value, lost.value):
        assert "[secret of it]" in str(error)
        assert not has_secret(f"{error!r} {error.__cause__!r} {error.__cause__}")
    assert "goodbye, [secret of it]" in (status.error or "")
    assert not has_secret(f"{status} {status.to_dict()}")


def leaking_settings() -> ServerSettings:
    entry = leaking(LEAK=SECRET, TOKEN=SECRET)
    return ServerSettings("it", Transport.STDIO, command=entry["command"], args=tuple(entry["args"]), env=entry["env"])


def test_a_call_and_the_list_of_servers_in_a_terminal_show_no_secret(tmp_path: Path) -> None:
    write_config(tmp_path, {"it": leaking(LEAK=SECRET, TOKEN=SECRET)})
    for words in (("call", "leak", "{}"), ("servers", "--json"), ("call", "leak", '{"how": "death"}')):
        run = dial_chat(tmp_path, "-v", *words) if words[0] == "servers" else dial_chat(tmp_path, *words)
        assert "[secret of it]" in run.stdout + run.stderr
        assert not has_secret(run.stdout + run.stderr)


@pytest.mark.anyio
async def test_headers_and_query_of_a_url_are_masked_and_sent_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with web_server("raw_http.py", "Handler") as address:
        url = f"{address}/mcp?key=planted-query"
        async with connection(web(url, headers={"Authorization": "Bearer planted-token"})) as server:
            assert await call_for_text(server, "token") == "Bearer [secret of it]"
            assert await call_for_text(server, url=url) == f'{{"url": "{address}/mcp?key=[secret of it]"}}'
    assert "HTTP Request: POST" in caplog.text
    assert "planted" not in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_token_of_a_login_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redirect_user_data(tmp_path, monkeypatch)
    with guarded() as server:
        server.says_token = True
        async with DialClient(servers={"docs": {"url": server.url}}, callbacks=Callbacks(login=Person())) as dial:
            assert (await dial.call("echo", {})).content == "your token is [secret of docs]"


# Masking


def masked(text: str, *secrets: str) -> str:
    return SecretMask("it", *secrets).mask_text(text)


def test_short_secrets_are_masked_as_whole_words_and_very_short_secrets_never() -> None:
    assert masked("pin 4711, 47110, x4711", "4711") == "pin [secret of it], 47110, x4711"
    assert masked("abc", "abc") == "abc"


def test_a_key_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----"
    text = masked("read: MIIEvQIBADANBgkqhkiG9w0B and AQEFAASCBKcwggSjAgEAAoIB", key)
    assert text == "read: [secret of it] and [secret of it]"


def test_protocol_fields_and_image_data_are_not_masked() -> None:
    message: dict[str, Any] = {
        "content": [{"type": "text", "text": "text cursor1"}, {"type": "image", "data": "cursor1", "mimeType": "text"}],
        "nextCursor": "cursor1",
        "requestState": "cursor1",
        "tools": [{"name": "cursor1", "description": "cursor1"}],
        "structuredContent": {"type": "text", "cursor1": {"name": "cursor1"}},
    }
    SecretMask("it", "text", "cursor1").mask_json(message)
    assert message == {
        "content": [
            {"type": "text", "text": "[secret of it] [secret of it]"},
            {"type": "image", "data": "cursor1", "mimeType": "text"},
        ],
        "nextCursor": "cursor1",
        "requestState": "cursor1",
        "tools": [{"name": "cursor1", "description": "[secret of it]"}],
        "structuredContent": {"type": "[secret of it]", "[secret of it]": {"name": "[secret of it]"}},
    }


def test_masking_handles_deep_and_large_values() -> None:
    deep: Any = "planted-secret"
    for _ in range(100_000):
        deep = [deep]
    SecretMask("it", "planted-secret").mask_json(deep)
    while isinstance(deep, list):
        deep = deep[0]
    assert deep == "[secret of it]"
    assert masked("planted-secre" * 300_000, "planted-secret").endswith("planted-secre")


@pytest.mark.parametrize("cut", range(1, len("planted-secret")))
def test_a_truncated_line_of_standard_error_ends_before_the_secret(cut: int) -> None:
    tail = StderrTail(SecretMask("it", "planted-secret"))
    tail.feed(b"x" * (MAX_LINE_BYTES - cut) + b"planted-secret and more\n" + b"the key is planted-secret"[: 11 + cut])
    assert "plan" not in "".join(tail.lines)


# Detection of secrets


def settings(**parts: Any) -> ServerSettings:
    return ServerSettings(**({"name": "it", "transport": Transport.STDIO} | parts))


HARMLESS = {
    "PORT": "80808080",
    "DEBUG": "true",
    "AUTH": "none",
    "AUTH_TYPE": "basic-password",
    "MAX_TOKENS": "40960000",
    "TOKEN_FILE": "/run/secrets/token9x7",
    "HOME_DIR": "/home/somebody/a1b2c3",
    "TZ": "America/Argentina/Salta",
    "LANG": "en_US.UTF-8",
    "MODEL": "claude-sonnet-5-5-20260101",
    "NODE_OPTIONS": "--max-old-space-size=4096",
    "ENDPOINT": "https://api.example.test:8443/v1/things?limit=100",
    "DB_HOST": "db-7f3a9c1.eu-west-1.example.test",
    "WHO": "somebody@example.test",
    "CLIENT_ID": "a1b2c3d4e5f6a7b8",
    "LOG_FORMAT": "%(asctime)s x9y8z7w6v5",
    "KEYBOARD": "qwertz-de-1999",
    "AUTHOR": "Somebody Or Other",
    "GREETING": "Hello, how are you 2day?",
}


@pytest.mark.parametrize(("name", "value"), HARMLESS.items())
def test_common_values_of_settings_are_not_secrets(name: str, value: str) -> None:
    assert find_secrets(settings(env={name: value})) == frozenset()


SECRETS: list[tuple[dict[str, Any], set[str]]] = [
    ({"env": {"GITHUB_TOKEN": "abcd"}}, {"abcd"}),
    ({"env": {"apiKey": "plain"}}, {"plain"}),
    ({"env": {"DBPASSWORD": "correct horse"}}, {"correct horse"}),
    ({"env": {"WHATEVER": "x7Kq9-Zt42wPm"}}, {"x7Kq9-Zt42wPm"}),
    ({"env": {"DSN": "postgres://me:hunter2@db.test/x"}}, {"hunter2"}),
    ({"env": {"ODBC": "Server=db.test; Uid=me; Pwd=hunter2;"}}, {"hunter2"}),
    ({"env": {"HEADERS": '{"Authorization": "Bearer abc123", "Accept": "text/plain"}'}}, {"abc123"}),
    ({"headers": {"Authorization": "Bearer abc123"}}, {"abc123"}),
    ({"headers": {"X-Api-Key": "abc123", "Accept": "application/json"}}, {"abc123"}),
    ({"headers": {"Authorization": "Basic bWU6aHVudGVyMg=="}}, {"bWU6aHVudGVyMg==", "hunter2"}),
    ({"headers": {"Cookie": "session=a1b2c3; theme=dark"}}, {"a1b2c3", "dark"}),
    ({"url": "https://mcp.test/s/a9f8e7d6c5b4a3f2e1d0/mcp?user=me&api_key=abc123"}, {"a9f8e7d6c5b4a3f2e1d0", "abc123"}),
    ({"url": "https://me:hunter2@mcp.test/mcp"}, {"hunter2"}),
    ({"args": ("-y", "server@1.2.3", "--api-key", "abc123", "--port", "8080")}, {"abc123"}),
    ({"args": ("--token=abc123", "--token-file=/x/y", "--verbose")}, {"abc123"}),
    ({"args": ("run", "-e", "GITHUB_TOKEN=abc123", "-e", "LEVEL=info", "image:latest")}, {"abc123"}),
    (
        {"args": ("mcp-remote", "https://x.test/mcp?key=abc123", "--header", "Authorization: Bearer xyz99")},
        {"abc123", "xyz99"},
    ),
    (
        {"args": ("sk-ant-api03-AbCdEfGhIjKlMnOp", "ghp_abcdefghijklmnopqrstuv")},
        {"sk-ant-api03-AbCdEfGhIjKlMnOp", "ghp_abcdefghijklmnopqrstuv"},
    ),
    (
        {"args": ("run", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl")},
        {"eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"},
    ),
    ({"args": ("/home/me/projects/thing", "@scope/server-filesystem@2025.7.29", "--allow-write")}, set()),
]


@pytest.mark.parametrize(("parts", "secrets"), SECRETS)
def test_secrets_are_found_in_every_field_of_an_entry(parts: dict[str, Any], secrets: set[str]) -> None:
    assert find_secrets(settings(**parts)) == secrets


@pytest.mark.once
def test_finding_secrets_does_not_take_quadratic_time() -> None:
    long = "x" * 100_000  # quadratic time took minutes and blocked all servers
    beginnings = "-eyJabcde" * 20_000  # each may begin the header of a JWT
    args = (f"{long} {beginnings} https://host/?token=pa55w0rd-of-mine",)
    assert find_secrets(ServerSettings("it", Transport.STDIO, args=args)) == {"pa55w0rd-of-mine"}
