"""Whose logins a client uses: its own by default; those of a folder, of a user or of a store if the program says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, ServerState
from dial_client.extend import FolderLogins, MemoryLogins
from dial_client.testing import ScriptedProvider
from tests.inner import Callbacks, Login
from tests.support.oauth_logins import Person, find_stored_logins, redirect_user_data
from tests.support.program import LONG, write_config
from tests.support.servers.oauth_server import Guarded, guarded

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return redirect_user_data(tmp_path / "home", monkeypatch)


def client(server: Guarded, login: Login | None = None, **options: Any) -> DialClient:
    return DialClient(servers={"docs": {"url": server.url}}, callbacks=Callbacks(login=login), **options)


async def test_two_clients_of_a_program_log_in_as_two_users(server: Guarded, home: Path) -> None:
    ann, bob = Person(), Person()
    async with client(server, ann) as first, client(server, bob) as second, client(server) as third:
        assert (len(ann.asked), len(bob.asked)) == (1, 1)
        assert (await first.call("echo", {})).success
        assert (await second.call("echo", {})).success
        status = third.servers["docs"]
        assert status.state is ServerState.FAILED
        assert "it needs a login" in (status.error or "")
        assert "logins=True" in (status.error or "")
        assert "Callbacks(login=…)" in (status.error or "")
    tokens = {headers["Authorization"] for path, headers in server.seen if path == "mcp tools/call"}
    assert len(tokens) == 2
    assert find_stored_logins(home) == []


async def test_the_tools_that_a_person_was_offered_are_not_kept_for_the_next_person(
    server: Guarded, tmp_path: Path
) -> None:
    async with client(server, Person(), cache_dir=tmp_path / "cache") as ann:
        assert ann.tools
    entry = {"docs": {"url": server.url, "lazy": True}}
    async with DialClient(servers=entry, cache_dir=tmp_path / "cache") as bob:
        assert bob.tools == ()


async def test_a_client_keeps_its_login_while_its_server_restarts(server: Guarded) -> None:
    person = Person()
    async with client(server, person) as dial:
        await dial.restart_server("docs")
        assert dial.servers["docs"].state is ServerState.READY
    assert len(person.asked) == 1


async def test_a_folder_shares_logins_between_clients_and_runs(server: Guarded, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logins"
    async with client(server, Person(), logins=folder):
        pass
    async with client(server, logins=str(folder)) as dial:
        assert dial.servers["docs"].state is ServerState.READY
    assert len(find_stored_logins(tmp_path)) == 1
    assert find_stored_logins(home) == []


async def test_users_of_one_folder_have_logins_of_their_own(server: Guarded, tmp_path: Path) -> None:
    folder = tmp_path / "logins"
    for name in ("ann", "bob", "ann"):
        async with client(server, Person(), logins=FolderLogins(folder, user=name)) as dial:
            assert dial.servers["docs"].state is ServerState.READY
    assert server.paths().count("/authorize") == 2
    async with client(server, logins=FolderLogins(folder, user="eve")) as dial:
        assert dial.servers["docs"].state is ServerState.FAILED
    async with client(server, logins=folder) as dial:
        assert dial.servers["docs"].state is ServerState.FAILED


async def test_true_is_the_folder_of_dial_chat(server: Guarded, home: Path) -> None:
    async with client(server, Person(), logins=True):
        pass
    assert len(find_stored_logins(home)) == 1
    async with client(server, logins=True) as dial:
        assert dial.servers["docs"].state is ServerState.READY


async def test_clients_may_share_one_store_in_memory(server: Guarded, home: Path) -> None:
    logins = MemoryLogins()
    async with client(server, Person(), logins=logins):
        pass
    async with client(server, logins=logins) as dial:
        assert dial.servers["docs"].state is ServerState.READY
    assert find_stored_logins(home) == []


class Table:
    """The logins of one user in a store of the program's own."""

    def __init__(self, rows: dict[tuple[str, str], str], user: str) -> None:
        self.rows, self.user = rows, user
        self.locks = 0

    async def load(self, key: str) -> str | None:
        return self.rows.get((self.user, key))

    async def save(self, key: str, login: str) -> None:
        self.rows[self.user, key] = login

    async def delete(self, key: str) -> bool:
        return self.rows.pop((self.user, key), None) is not None

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:  # noqa: ARG002 - one lock for all keys
        self.locks += 1
        return anyio.Lock()


async def test_a_store_of_the_programs_own_keeps_the_logins(server: Guarded, tmp_path: Path) -> None:
    rows: dict[tuple[str, str], str] = {}
    write_config(tmp_path, {"docs": {"url": server.url}})
    for user in ("ann", "bob"):
        callbacks = Callbacks(login=Person())
        async with DialClient.from_config(
            tmp_path / "servers.json", ScriptedProvider([]), logins=Table(rows, user), callbacks=callbacks
        ):
            pass
    assert sorted(user for user, _ in rows) == ["ann", "bob"]
    assert "secret" in rows[next(iter(rows))]
    ann = Table(rows, "ann")
    async with client(server, logins=ann) as dial:
        server.tokens.clear()
        assert (await dial.call("echo", {})).success


class Broken(Table):
    async def load(self, key: str) -> str | None:
        raise ValueError(key)


async def test_a_store_that_fails_is_an_error_of_its_server(server: Guarded) -> None:
    async with client(server, Person(), logins=Broken({}, "ann")) as dial:
        assert dial.servers["docs"].error == "its stored login cannot be read (ValueError)"


@pytest.mark.parametrize("given", [7, object(), FolderLogins])
async def test_what_stores_no_logins_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="logins takes"):
        DialClient(logins=given)


@pytest.mark.parametrize("kind", ["folder", "memory"])
async def test_one_of_two_clients_refreshes_their_login(server: Guarded, kind: str, tmp_path: Path) -> None:
    logins = MemoryLogins() if kind == "memory" else tmp_path / "logins"
    async with client(server, Person(), logins=logins) as first, client(server, logins=logins) as second:
        server.revoke_tokens()
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                results: list[bool] = []

                async def call(dial: DialClient) -> None:
                    results.append((await dial.call("echo", {})).success)

                group.start_soon(call, first)
                group.start_soon(call, second)
    assert results == [True, True]
    assert server.count_refreshes() == 1


async def test_one_of_two_clients_that_start_together_refreshes_their_expired_login(
    server: Guarded, tmp_path: Path
) -> None:
    async with client(server, Person(), logins=tmp_path / "logins"):
        pass
    [file] = find_stored_logins(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires_at": 1.0}))
    clients = [client(server, logins=tmp_path / "logins") for _ in range(2)]
    for dial in clients:
        await dial.open()
    for dial in clients:
        await dial.ready()
        assert (await dial.call("echo", {})).success
        await dial.aclose()
    assert server.count_refreshes() == 1
