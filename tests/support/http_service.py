"""The HTTP service in this process: the real server, on loopback, with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2

from tests.inner import (
    ANSWER_TIMEOUT,
    HEAD_TIMEOUT,
    MAX_BODY,
    MAX_TURNS,
    MAX_WAIT,
    SHUTDOWN_GRACE,
    AccessPolicy,
    AppContext,
    ApprovalPolicy,
    Callbacks,
    ConnectionLimits,
    ConversationStore,
    DialClient,
    Directory,
    DurableTimings,
    DurableTurns,
    HttpServer,
    HumanInputBroker,
    LaterCallers,
    McpEndpoint,
    McpOptions,
    MemoryStore,
    OidcLogin,
    Operations,
    Peers,
    PendingRequests,
    Provider,
    Proxies,
    ScriptedProvider,
    SecretBox,
    ServedModel,
    ServerLogins,
    ServerSettings,
    SQLStore,
    StoredCredentials,
    TitleWriter,
    TurnRegistry,
    UsageLedger,
    build_application,
    configuration,
    default_database,
    open_socket,
    run_maintenance,
)
from tests.support.program import LONG

TOKEN = "a-token"
MODEL = "the-model"
BOX = SecretBox([b"k" * 32])
ALWAYS_ASKED = Operations(check_interval=0.0)
SOON = DurableTimings(recovery_interval=0.1, idle_interval=0.1)


@dataclass
class HttpService:
    """A running service and its parts."""

    url: str
    http: httpx2.AsyncClient
    """Sends the token."""
    dial: DialClient
    store: ConversationStore
    turns: TurnRegistry
    server: HttpServer
    provider: Provider
    context: AppContext

    @property
    def mcp(self) -> McpEndpoint:
        """What serves `/mcp`."""
        assert self.context.mcp is not None
        return self.context.mcp

    async def json(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        """Send a request and return the JSON of the response; None if it has no body."""
        response = await self.http.request(method, path, **more)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def conversation(self) -> str:
        """Create a conversation and return its path."""
        return f"/conversations/{(await self.json('POST', '/conversations', 201))['id']}"


@asynccontextmanager
async def serve(
    model: Sequence[Any] | Provider,
    servers: Mapping[str, Any] | None = None,
    *,
    policy: AccessPolicy | None = None,
    store: ConversationStore | None = None,
    answer_timeout: float = ANSWER_TIMEOUT,
    max_turns: int = MAX_TURNS,
    max_wait: float = MAX_WAIT,
    grace: float = SHUTDOWN_GRACE,
    head_timeout: int = HEAD_TIMEOUT,
    durable: bool = False,
    shared: bool = False,
    timings: DurableTimings = SOON,
    limits: ConnectionLimits | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    grants: Directory = False,
    locked_settings: Sequence[str] = (),
    shares: bool = True,
    title_model: Provider | None = None,
    mcp: McpOptions | None = None,
    single_user: bool = True,
    proxies: Proxies | None = None,
    login: OidcLogin | None = None,
    operations: Operations = ALWAYS_ASKED,
    **options: Any,
) -> AsyncIterator[HttpService]:
    """Run the service; if it is `shared`, as one of several processes over PostgreSQL.

    On exit running turns are cancelled, or handed over to other processes if they are durable.
    """
    provider = ScriptedProvider(model) if isinstance(model, Sequence) else model
    turns = TurnRegistry(max_turns, hand_over=durable, max_wait=max_wait)
    conversations = store or MemoryStore()
    served = ServedModel(MODEL)
    peers = Peers(conversations) if shared and isinstance(conversations, SQLStore) else None
    credentials = StoredCredentials(conversations.credentials, BOX) if isinstance(conversations, SQLStore) else None
    requests = PendingRequests(peers, conversations.values if isinstance(conversations, SQLStore) else None)
    human_input = HumanInputBroker(
        turns, requests, timeout=answer_timeout, servers=servers, stores_grants=grants is not False
    )
    listener = open_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    auth = {"Authorization": f"Bearer {TOKEN}"}
    with closing(listener), anyio.fail_after(LONG):
        async with (
            DialClient(
                provider,
                servers=servers or {},
                approve=human_input,
                approval=ApprovalPolicy(
                    allow=allow, deny=deny, grants=grants, concurrent=True, single_user=single_user
                ),
                callbacks=Callbacks(
                    elicit=human_input.elicit, apps=True, callers=LaterCallers() if mcp is not None else None
                ),
                logins=credentials or True,
                credentials=credentials,
                **options,
            ) as dial,
            AsyncExitStack() as stack,
            anyio.create_task_group() as group,
            httpx2.AsyncClient(base_url=url, headers=auth, timeout=LONG, trust_env=False, verify=False) as http,
        ):
            workflows = (
                await stack.enter_async_context(durable_turns(dial, conversations, turns, timings)) if durable else None
            )
            locked = frozenset(locked_settings)
            logins = ServerLogins(dial, lambda name: _find_settings(servers or {}, name))
            endpoint = McpEndpoint(dial, turns, human_input, mcp) if mcp is not None else None
            context = AppContext(
                *(dial, conversations, human_input, turns, served, workflows),
                peers=peers,
                logins=logins,
                locked_settings=locked,
                shares=shares,
                titles=TitleWriter(dial, title_model) if title_model else None,
                mcp=endpoint,
                login=login,
                usage=UsageLedger(conversations.usage) if isinstance(conversations, SQLStore) else None,
                operations=operations,
            )
            app = build_application(context, policy or AccessPolicy(TOKEN, max_body=MAX_BODY))
            server = HttpServer(
                *(app, listener, turns),
                grace=grace,
                head_timeout=head_timeout,
                limits=limits,
                proxies=proxies or Proxies(),
            )

            async def serve_until_shutdown() -> None:
                await server.run(lambda: None)
                group.cancel_scope.cancel()

            group.start_soon(serve_until_shutdown)
            if peers is not None:
                group.start_soon(peers.run)
                group.start_soon(requests.run)
            group.start_soon(logins.run)
            group.start_soon(run_maintenance, context)
            for part in (endpoint, context.titles):
                if part is not None:
                    group.start_soon(part.run)
            yield HttpService(url, http, dial, conversations, turns, server, provider, context)
            await http.aclose()
            await turns.end(0.0)
            server.shut_down()
    await conversations.aclose()


def durable_turns(
    dial: DialClient, store: ConversationStore, turns: TurnRegistry, timings: DurableTimings
) -> DurableTurns:
    assert isinstance(store, SQLStore)
    return DurableTurns(
        dial,
        store,
        default_database(store.where),
        timings=timings,
        on_started=turns.add,
        is_stopping=lambda: turns.is_closed,
        when_busy="refuse",
        observers=(turns,),
    )


@dataclass(frozen=True)
class ServerSentEvent:
    """A server-sent event."""

    name: str
    """Empty for an unnamed event."""
    data: Any
    """The JSON data, or the string ``[DONE]``."""
    id: str = ""


async def read_events(response: httpx2.Response) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a stream as they arrive."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line and fields:
            text = fields.get("data", "")
            data = text if text == "[DONE]" else json.loads(text)
            yield ServerSentEvent(fields.get("event", ""), data, fields.get("id", ""))
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def join_text(events: Sequence[ServerSentEvent]) -> str:
    """Return the text of the unnamed events."""
    chunks = [event.data["choices"][0]["delta"] for event in events if not event.name and event.data != "[DONE]"]
    return "".join(chunk.get("content", "") for chunk in chunks)


class Gate:
    """Blocks a tool until a test opens the gate, and records the start and the cancellation."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.open = anyio.Event()
        self.cancelled = anyio.Event()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        self.begun.set()
        try:
            await self.open.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise


def _find_settings(servers: Mapping[str, Any], name: str) -> ServerSettings | None:
    return (
        configuration.parse(json.dumps({"mcpServers": {name: servers[name]}})).servers[name]
        if name in servers
        else None
    )
