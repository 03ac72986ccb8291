"""A server of this test's own: the real one, on loopback, in this process, before a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2

from dial_client.callbacks.server_callbacks import Callbacks
from dial_client.client import DialClient
from dial_client.client_options import ApprovalPolicy, Directory
from dial_client.durable import DurableTimings, DurableTurns, default_database
from dial_client.model import Provider
from dial_client.providers.scripted import ScriptedProvider
from dial_client.serve.application import AppContext, build_application
from dial_client.serve.cluster.peers import PeerBus
from dial_client.serve.connection_limits import ConnectionLimits
from dial_client.serve.http_server import HEAD_TIMEOUT, SHUTDOWN_GRACE, HttpServer, open_socket
from dial_client.serve.human_input import ANSWER_TIMEOUT, HumanInputBroker
from dial_client.serve.security import MAX_BODY, AccessPolicy
from dial_client.serve.turn_registry import MAX_TURNS, TurnRegistry
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore

LONG = 60.0
"""Seconds: a guard against waiting for ever, never a measure."""
TOKEN = "a-token"
MODEL = "the-model"
SOON = DurableTimings(recovery_interval=0.1)


@dataclass
class Served:
    """What a test has to do with."""

    url: str
    http: httpx2.AsyncClient
    """Shows the token."""
    dial: DialClient
    store: ConversationStore
    turns: TurnRegistry
    server: HttpServer
    provider: Provider

    async def json(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        """Ask, and give the answer's JSON; None where it has no body."""
        answer = await self.http.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def conversation(self) -> str:
        """Begin one, and give its address."""
        return f"/conversations/{(await self.json('POST', '/conversations', 201))['id']}"


@asynccontextmanager
async def served(
    model: Sequence[Any] | Provider,
    servers: Mapping[str, Any] | None = None,
    *,
    policy: AccessPolicy | None = None,
    store: ConversationStore | None = None,
    answer_timeout: float = ANSWER_TIMEOUT,
    max_turns: int = MAX_TURNS,
    grace: float = SHUTDOWN_GRACE,
    head_timeout: int = HEAD_TIMEOUT,
    durable: bool = False,
    timings: DurableTimings = SOON,
    limits: ConnectionLimits | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    grants: Directory = False,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serve until this is left, which cancels what still runs, or leaves it to others where turns are durable."""
    provider = ScriptedProvider(model) if isinstance(model, Sequence) else model
    turns = TurnRegistry(max_turns, hand_over=durable)
    kept = store or MemoryStore()
    peers = PeerBus(kept, turns, MODEL)
    human_input = HumanInputBroker(turns, peers, timeout=answer_timeout, servers=servers)
    listener = open_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    auth = {"Authorization": f"Bearer {TOKEN}"}
    with closing(listener), anyio.fail_after(LONG):
        async with (
            DialClient(
                servers or {},
                provider,
                approve=human_input,
                approval=ApprovalPolicy(allow=allow, deny=deny, grants=grants, concurrent=True),
                callbacks=Callbacks(elicit=human_input.elicit),
                **options,
            ) as dial,
            AsyncExitStack() as stack,
            anyio.create_task_group() as group,
            httpx2.AsyncClient(base_url=url, headers=auth, timeout=LONG, trust_env=False, verify=False) as http,
        ):
            lasting = await stack.enter_async_context(durable_turns(dial, kept, turns, timings)) if durable else None
            context = AppContext(dial, kept, human_input, turns, MODEL, lasting, peers=peers)
            app = build_application(context, policy or AccessPolicy(TOKEN, max_body=MAX_BODY))
            server = HttpServer(app, listener, turns, grace=grace, head_timeout=head_timeout, limits=limits)
            group.start_soon(server.run, lambda: None)
            group.start_soon(peers.run)
            yield Served(url, http, dial, kept, turns, server, provider)
            await http.aclose()
            await turns.end(0.0)
            server.shut_down()
            peers.close()
    await kept.aclose()


def durable_turns(
    dial: DialClient, kept: ConversationStore, turns: TurnRegistry, timings: DurableTimings
) -> DurableTurns:
    assert isinstance(kept, SQLStore)
    return DurableTurns(
        dial,
        kept,
        default_database(kept.where),
        timings=timings,
        on_started=turns.add,
        is_stopping=lambda: turns.is_closed,
        when_busy="refuse",
    )


@dataclass(frozen=True)
class Heard:
    """One server-sent event."""

    name: str
    """Empty for an unnamed one."""
    data: Any
    """Its JSON; the text itself where it is ``[DONE]``."""
    id: str = ""


async def heard(answer: httpx2.Response) -> AsyncIterator[Heard]:
    """Give the events of a stream as they come."""
    said: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if not line and said:
            data = said.get("data", "")
            yield Heard(said.get("event", ""), data if data == "[DONE]" else json.loads(data), said.get("id", ""))
            said = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            said[name] = value


def text_of(events: Sequence[Heard]) -> str:
    """Give the text of the unnamed events."""
    chunks = [event.data["choices"][0]["delta"] for event in events if not event.name and event.data != "[DONE]"]
    return "".join(chunk.get("content", "") for chunk in chunks)


class Gate:
    """A tool's work that waits until it may go on; it knows when it began and whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.open = anyio.Event()
        self.cancelled = anyio.Event()

    async def passed(self) -> None:
        """Wait at the gate."""
        self.begun.set()
        try:
            await self.open.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
