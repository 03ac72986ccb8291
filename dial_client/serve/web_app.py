"""The application as a whole: what ``dial-chat serve`` runs, and what another program mounts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_settings import KEYS
from dial_client.durable import DurableTurns, default_database
from dial_client.messages.errors import ConfigError
from dial_client.messages.model import Provider
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger
from dial_client.serve.application import AppContext, build_application
from dial_client.serve.http_messages import HttpError
from dial_client.serve.maintenance import run_maintenance
from dial_client.serve.mcp_endpoint import McpEndpoint, McpOptions
from dial_client.serve.operations import Operations
from dial_client.serve.people.authentication import Authenticator
from dial_client.serve.people.oidc_login import OidcLogin
from dial_client.serve.people.usage_ledger import UsageLedger
from dial_client.serve.routes.server_routes import ConfigChanger, ServerLogins
from dial_client.serve.security import AccessPolicy, build_policy, check_origin, check_token, is_loopback
from dial_client.serve.title_writer import TitleWriter
from dial_client.serve.turns.human_input import ANSWER_TIMEOUT, DURABLE_ANSWER_TIMEOUT, HumanInputBroker, PageUser
from dial_client.serve.turns.peers import Peers
from dial_client.serve.turns.pending_requests import PendingRequests
from dial_client.serve.turns.turn_registry import MAX_TURNS, ServedModel, TurnRegistry
from dial_client.settings.argument_types import check_seconds
from dial_client.settings.config_types import ServerSettings
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore

log = get_logger(__name__)

_MCP = McpOptions()
_OPERATIONS = Operations()


class WebApp:
    """The page and the HTTP API as an ASGI application, which `create_app` returns.

    It works while its lifespan runs. A server runs the lifespan of the application that it serves, but frameworks do
    not run the lifespan of a mounted application: run it in that of the program, ``FastAPI(lifespan=web.lifespan)``.
    """

    def __init__(self, context: AppContext, policy: AccessPolicy) -> None:
        self.context = context
        self._respond = build_application(context, policy)
        self._lifespan_protocol = Router(lifespan=self.lifespan)
        self._is_running = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request, or run the lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan_protocol(scope, receive, send)
        elif scope["type"] == "http" and not self._is_running:
            message = "the lifespan of this application does not run: FastAPI(lifespan=web.lifespan) runs it"
            refusal = HttpError(503, message, "not_started", kind="server_error")
            await refusal.to_response()(scope, receive, send)
        else:
            await self._respond(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None, None]:  # noqa: ARG002 - frameworks pass theirs
        """Within the context the application works. An application runs once.

        The client is opened, and closed at the end, unless it is open already. The store is closed at the end, after
        the running turns were cancelled, or handed over if they are durable.

        Raises:
            ConfigError: The database of durable turns cannot be used.
            RuntimeError: The application has run before.
            ServerStartError: A server marked ``required`` did not start.
        """
        context = self.context
        if self._is_running or context.turns.is_closed:
            raise RuntimeError("an application runs once: create another one")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close_store)
            if not context.dial.is_open:
                await stack.enter_async_context(context.dial)
            if isinstance(context.store, SQLStore):
                await context.store.open()
            if context.durable is not None:
                await stack.enter_async_context(context.durable)
            tasks = await BackgroundTasks.open()
            stack.push_async_callback(tasks.aclose)
            if context.peers is not None:
                tasks.start_soon(context.peers.run)
            tasks.start_soon(context.human_input.requests.run)
            if context.logins is not None:
                tasks.start_soon(context.logins.run)
            if context.titles is not None:
                tasks.start_soon(context.titles.run)
            if context.mcp is not None:
                tasks.start_soon(context.mcp.run)
            tasks.start_soon(run_maintenance, context)
            stack.push_async_callback(self._end_turns)
            self._is_running = True
            yield

    async def _end_turns(self) -> None:
        self._is_running = False
        with anyio.CancelScope(shield=True):
            await self.context.turns.end(0.0)

    async def _close_store(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.context.store.aclose()


def create_app(  # noqa: PLR0913 - the options of the service, all but two by name
    dial: DialClient,
    user: PageUser | None,
    *,
    token: str | None,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    store: ConversationStore | None = None,
    name: str = "",
    max_turns: int = MAX_TURNS,
    durable: bool = False,
    answer_timeout: float | None = None,
    shares: bool = True,
    title_model: str | Provider | None = None,
    locked_settings: Collection[str] = (),
    change_config: ConfigChanger | None = None,
    report: Callable[[str], None] = lambda text: log.warning("unattended", text=text),
    mcp: McpOptions | None = _MCP,
    authenticator: Authenticator | None = None,
    login: OidcLogin | None = None,
    operations: Operations = _OPERATIONS,
) -> WebApp:
    """Return the page and the HTTP API of ``dial-chat serve`` for a client, as an ASGI application.

    Serve it alone, or mount it under a prefix: ``app.mount("/assistant", web)``; then run its `WebApp.lifespan` too.
    All who have the token share one set of conversations. With an `authenticator` each person has conversations,
    approvals, questions and grants of their own.

    Args:
        dial: The client, which also the program itself may use. Open it yourself, or leave that to the lifespan.
        user: The person at the page, who is also the client's approver (``approve=user``) and answers questions of
            servers (``callbacks=Callbacks(elicit=user.elicit)``); None if the client decides without this person.
        token: What clients send as ``Authorization: Bearer TOKEN``, and the page asks for. None requires none: for
            programs that check who sends a request before the application gets it, or that only this machine reaches.
        host: The address that the server listens on. Only beyond loopback is a token required.
        allow_hosts: Names of the server besides `host` and loopback, such as ``chat.example.com``, for ``Host``.
        store: The conversations; None to keep them in memory. The lifespan closes it.
        name: The name of the model for clients of the API; empty for its own name.
        max_turns: Maximum number of running turns; further ones are refused with 429.
        durable: Whether turns survive the process, which over PostgreSQL is one of several; `store` is an `SQLStore`.
        answer_timeout: Seconds for which a call waits for approval, and a question of a server for its answer; None
            for a day, and with `durable` for 30 days. Turns that wait take no place of `max_turns`.
        shares: Whether a conversation can be shared by a link, which everybody who has it reads without the token.
        title_model: The model that writes titles, with one request for each conversation; None for the first words.
        locked_settings: The names of the settings that conversations cannot override.
        change_config: Changes the servers of the configuration; None if clients may not change it.
        report: Called with a message when a request is refused because there is no person to ask.
        mcp: How ``/mcp`` serves the tools of the client's servers to other MCP hosts; None to serve them to none.
        authenticator: Decides who sends a request, in place of the token, such as `PersonalTokens(store.tokens)`.
        login: Logs persons in on the page; None to let the page ask for a token.
        operations: How the service is watched, and its audit log.

    Raises:
        ConfigError: The token is missing or too short, there is no such setting or origin, or no durable turns.
        RuntimeError: The user has another application.
    """
    _check_options(token, authenticator, host, mcp, locked_settings)
    store, locked = store or MemoryStore(), frozenset(locked_settings)
    turns, model = TurnRegistry(max_turns, hand_over=durable), ServedModel(name or dial.model_name)
    peers = Peers(store) if durable and isinstance(store, SQLStore) and store.is_postgres else None
    timeout = _choose_answer_timeout(answer_timeout, durable=durable)
    asks = _build_human_input(dial, store, turns, peers, timeout=timeout, report=report)
    if user is not None:
        user.answer_with(asks)
    context = AppContext(
        *(dial, store, asks, turns, model, _build_durable(dial, store, turns, locked) if durable else None),
        peers=peers,
        change_config=change_config,
        logins=ServerLogins(dial, partial(_find_server, dial.approvals.entries)),
        locked_settings=locked,
        shares=shares,
        titles=TitleWriter(dial, title_model) if title_model else None,
        login=login,
        usage=UsageLedger(store.usage) if isinstance(store, SQLStore) else None,
        operations=operations,
        mcp=McpEndpoint(dial, turns, asks, mcp, authenticator) if mcp is not None else None,
    )
    origins, mcp_authenticator = ((), None) if mcp is None else (mcp.origins, mcp.authenticator)
    return WebApp(context, build_policy(host, token, allow_hosts, origins, authenticator, mcp_authenticator))


def _check_options(
    token: str | None,
    authenticator: Authenticator | None,
    host: str,
    mcp: McpOptions | None,
    locked_settings: Collection[str],
) -> None:
    if token is not None:
        check_token(token, host)
    elif authenticator is None and not is_loopback(host):
        raise ConfigError(f"a token is required beyond loopback, that is for {host}", hint="token=…")
    for origin in mcp.origins if mcp is not None else ():
        check_origin(origin)
    if unknown := sorted(set(locked_settings) - KEYS):
        raise ConfigError(f"there is no setting {unknown[0]!r}", hint=f"one of {', '.join(sorted(KEYS))}")


def _find_server(servers: Mapping[str, object], name: str) -> ServerSettings | None:
    entry = servers.get(name)
    return entry if isinstance(entry, ServerSettings) else None


def _build_human_input(
    dial: DialClient,
    store: ConversationStore,
    turns: TurnRegistry,
    peers: Peers | None,
    *,
    timeout: float,
    report: Callable[[str], None],
) -> HumanInputBroker:
    pending = PendingRequests(peers, store.values if isinstance(store, SQLStore) else None)
    servers, stores_grants = dial.approvals.entries, dial.approvals.grants is not None
    return HumanInputBroker(
        turns, pending, timeout=timeout, servers=servers, stores_grants=stores_grants, report=report
    )


def _choose_answer_timeout(seconds: float | None, *, durable: bool) -> float:
    if seconds is None:
        return DURABLE_ANSWER_TIMEOUT if durable else ANSWER_TIMEOUT
    check_seconds(answer_timeout=seconds)
    return seconds


def _build_durable(
    dial: DialClient, store: ConversationStore, turns: TurnRegistry, locked: frozenset[str]
) -> DurableTurns:
    if not isinstance(store, SQLStore):
        raise ConfigError("durable turns need conversations in a database", hint="store=SQLStore(…)")
    return DurableTurns(
        dial,
        store,
        default_database(store.where),
        on_started=turns.add,
        is_stopping=lambda: turns.is_closed,
        when_busy="refuse",
        locked_settings=locked,
        observers=(turns,),
    )
