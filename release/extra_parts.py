"""Uses the features of each extra once: ``use_extra(NAME)`` in an environment that has this extra and no other.

No feature needs an account, and only the weights of the embedded model need a network: credentials are rejected before
a request is sent, and endpoints are closed ports of this machine.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import anyio

from dial_client import ConfigError, ConversationManager, DialClient, DialError, DurableTurns, SQLStore
from dial_client.testing import ScriptedProvider

CLOSED = "http://127.0.0.1:9"
"""The port of the discard service, where nothing listens."""
CREDENTIALS = {
    "AZURE_OPENAI_ENDPOINT": CLOSED,
    "AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential",
    "ANTHROPIC_FOUNDRY_BASE_URL": CLOSED,
    "ANTHROPIC_BEDROCK_BASE_URL": CLOSED,
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_REGION": "eu-west-1",
    "AWS_SECRET_ACCESS_KEY": "none",
    "ANTHROPIC_VERTEX_PROJECT_ID": "none",
    "CLOUD_ML_REGION": "europe-west1",
    "GOOGLE_APPLICATION_CREDENTIALS": os.devnull,
}


async def _ask_embedded_model() -> None:
    async with DialClient("local") as dial:
        turn = await dial.run("Write one sentence about the sea.")
    assert len(turn.text) > 10, turn.text


async def _ask_cloud(model: str, expected: str) -> None:
    os.environ |= CREDENTIALS
    try:
        async with DialClient(model) as dial:
            await dial.run("Hello.")
    except ConfigError:
        raise
    except DialError as error:
        assert expected in str(error), error
    else:
        raise AssertionError(f"{model} answered")


async def _store_login() -> None:
    from dial_client.servers.oauth.login_stores import FolderLogins
    from dial_client.servers.oauth.token_storage import TokenRecord, TokenStorage
    from dial_client.settings.config_types import ServerSettings, Transport

    keyring: Any = import_module("keyring")
    base: Any = import_module("keyring.backend").KeyringBackend

    class MemoryKeyring(base):  # type: ignore[misc]
        priority = 1

        def __init__(self) -> None:
            super().__init__()
            self.passwords: dict[tuple[str, str], str] = {}

        def get_password(self, service: str, username: str) -> str | None:
            return self.passwords.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.passwords[service, username] = password

    memory = MemoryKeyring()
    keyring.set_keyring(memory)
    storage = TokenStorage(ServerSettings("docs", Transport.HTTP, url="https://docs.example/mcp"), FolderLogins())
    await storage.save(TokenRecord(issuer="https://issuer.example"))
    assert (await storage.load()).issuer == "https://issuer.example"
    assert len(memory.passwords) == 1


async def _find_price() -> None:
    from dial_client.messages.model import ModelInfo
    from dial_client.messages.token_usage import Usage
    from dial_client.turns.prices import compute_cost

    price = compute_cost(Usage(1_000, 1_000), ModelInfo("openai:gpt-4o", "gpt-4o", "https://api.openai.com/v1"))
    assert price is not None and price > 0, price


async def _open_postgres() -> None:
    try:
        await SQLStore("postgresql://user@127.0.0.1:9/database").list()
    except ConfigError:
        raise
    except DialError as error:
        assert "cannot be reached" in str(error), error
    else:
        raise AssertionError("a closed port was accepted as a database")


async def _answer_editor() -> None:
    from dial_client.cli.acp_command import answer_editor
    from dial_client.cli.options import Options
    from dial_client.gateway.standard_files import StandardFiles

    (given, editor), (shown, output) = os.pipe(), os.pipe()
    os.close(editor)  # an editor that has ended
    try:
        assert await answer_editor(Options(), StandardFiles(given, output)) == 0
    finally:
        os.close(shown)


async def _run_program() -> None:
    async with DialClient(tools=[]) as dial:
        result = await dial.run_code("6 * 7")
        assert result.value == 42, result.content


async def _read_metrics() -> None:
    from dial_client.serve import ServiceMetrics

    content, _ = ServiceMetrics().encode("")
    assert b"dial_turn_seconds" in content, content


async def _run_durable_turn() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SQLStore(f"sqlite:///{folder}/conversations.db")
        try:
            async with (
                DialClient(ScriptedProvider(["Noon."])) as dial,
                DurableTurns(dial, store, f"sqlite:///{folder}/workflows.db") as turns,
            ):
                conversation = await turns.manager.create()
                turn_id = await turns.submit(conversation.id, "What time is it?")
                assert (await turns.result(turn_id)).text == "Noon."
        except ConfigError as error:
            if not _is_sqlite_too_old() or "SQLite 3.42" not in str(error):
                raise
            print(f"only with PostgreSQL: {error}")
        finally:
            await store.aclose()


def _is_sqlite_too_old() -> bool:
    """Return True if durable turns cannot use the SQLite of this Python, as docs/durable.md describes."""
    return sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42)


async def _call_demo_server() -> None:
    call = {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]}
    servers: dict[str, Any] = {"time": {"command": "mcp-server-time"}, "git": {"command": "mcp-server-git"}}
    async with DialClient(ScriptedProvider([call, "Noon."]), servers=servers) as dial:
        turn = await dial.run("What time is it in Tokyo?")
        assert {"get_current_time", "git_status"} <= {tool.name for tool in dial.tools}, dial.servers
    assert [record.result.success for record in turn.tool_calls] == [True], turn.tool_calls


async def _use_core() -> None:
    """Hold a conversation, and check that the error for each missing extra says how to install it."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLStore(f"sqlite:///{folder}/conversations.db")
        async with DialClient(ScriptedProvider(["Hello."])) as dial:
            manager = ConversationManager(dial, store)
            assert (await manager.chat((await manager.create()).id, "Hello.")).text == "Hello."
        await store.aclose()
    for extra in NAMED_WHERE_MISSING:
        try:
            await PARTS[extra]()
        except ConfigError as error:
            assert f"dial-client[{extra}]" in f"{error} {error.hint}", error
        else:
            raise AssertionError(f"{extra} is installed")


PARTS: Mapping[str, Callable[[], Awaitable[Any]]] = MappingProxyType(
    {
        "": _use_core,
        "local": _ask_embedded_model,
        "keyring": _store_login,
        "prices": _find_price,
        "postgres": _open_postgres,
        "metrics": _read_metrics,
        "azure": partial(_ask_cloud, "azure:none", "sign in with 'az login'"),
        "foundry": partial(_ask_cloud, "foundry:none", "sign in with 'az login'"),
        "bedrock": partial(_ask_cloud, "bedrock:none", "cannot be reached"),
        "vertex": partial(_ask_cloud, "vertex:none", "sign in with 'gcloud"),
        "acp": _answer_editor,
        "code": _run_program,
        "durable": _run_durable_turn,
        "demo": _call_demo_server,
    }
)
"""The functions that use the features of each extra; the empty name is the package without extras."""
NAMED_WHERE_MISSING = (
    "local",
    "postgres",
    "metrics",
    "azure",
    "foundry",
    "bedrock",
    "vertex",
    "acp",
    "code",
    "durable",
)
"""The extras whose features raise an error that names the extra, if it is missing."""


def use_extra(name: str) -> None:
    """Use the features of an extra; raise an error if one does not work."""
    anyio.run(PARTS[name])
