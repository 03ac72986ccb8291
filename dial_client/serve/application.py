"""The ASGI application: all routes behind access control."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.durable import DurableTurns
from dial_client.hooks.owners import act_for
from dial_client.serve.front_ends.routes import FrontEndRoutes
from dial_client.serve.http_messages import HttpError, build_json_response, build_path_error
from dial_client.serve.mcp_endpoint import McpEndpoint
from dial_client.serve.metrics import ServiceMetrics
from dial_client.serve.model_api.answer_turns import AnswerTurns
from dial_client.serve.model_api.chat_completions import ChatCompletionsEndpoint
from dial_client.serve.model_api.messages import MessagesEndpoint
from dial_client.serve.model_api.offered_models import ModelNames
from dial_client.serve.model_api.response_store import ResponseStore
from dial_client.serve.model_api.responses import ResponsesEndpoint
from dial_client.serve.operations import Operations
from dial_client.serve.people.authentication import Person
from dial_client.serve.people.oidc_login import OidcLogin
from dial_client.serve.people.stored_credentials import StoredCredentials
from dial_client.serve.people.usage_ledger import UsageLedger
from dial_client.serve.readiness import Readiness
from dial_client.serve.request_log import RequestLog
from dial_client.serve.routes.access_routes import AccessRoutes
from dial_client.serve.routes.conversation_routes import ConversationRoutes
from dial_client.serve.routes.credential_routes import CredentialRoutes
from dial_client.serve.routes.feature_routes import FeatureRoutes
from dial_client.serve.routes.server_routes import ConfigChanger, ServerLogins, ServerRoutes
from dial_client.serve.routes.share_routes import ShareRoutes
from dial_client.serve.routes.usage_routes import UsageRoutes
from dial_client.serve.security import HEALTH, PERSON, READY, AccessPolicy, SecurityMiddleware, find_person
from dial_client.serve.static_files import StaticFiles
from dial_client.serve.title_writer import TitleWriter
from dial_client.serve.turn_starter import TurnStarter
from dial_client.serve.turns.human_input import HumanInputBroker
from dial_client.serve.turns.owner_counts import RequestRates, SharedPlaces
from dial_client.serve.turns.peers import Peers
from dial_client.serve.turns.remote_turns import RemoteTurns
from dial_client.serve.turns.turn_registry import ServedModel, TurnRegistry
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.sql_store import SQLStore


@dataclass(frozen=True, slots=True)
class AppContext:
    """The objects that the application works with."""

    dial: DialClient
    """The client, entered. Its approver is `human_input`."""
    store: ConversationStore
    human_input: HumanInputBroker
    turns: TurnRegistry
    model: ServedModel
    durable: DurableTurns | None = None
    """Runs the turns of conversations; None for turns that end with this process."""
    peers: Peers | None = None
    """The other processes over the same database; None if this is the only one."""
    change_config: ConfigChanger | None = None
    """Changes the configuration; None if clients may not change it."""
    logins: ServerLogins | None = None
    """The OAuth logins in progress; None if logins over HTTP are disabled."""
    locked_settings: frozenset[str] = frozenset()
    """The names of the settings that conversations cannot override."""
    shares: bool = True
    """Whether conversations can be shared by a link, which is read without the token."""
    titles: TitleWriter | None = None
    """Lets a model write titles; None to keep the first words of conversations."""
    login: OidcLogin | None = None
    """Logs persons in on the page; None if the page asks for a token."""
    usage: UsageLedger | None = None
    """What persons have used; None without a database."""
    operations: Operations = field(default_factory=Operations)
    mcp: McpEndpoint | None = None
    """Serves the servers' tools to other MCP hosts; None to serve them to none."""


# The paths at which a POST request asks a model.
_ASKS_A_MODEL = re.compile(
    r"/v1/(chat/completions|responses|messages)|/ag-ui|/ai-sdk/chat|/conversations/[^/]+/(chat|regenerate|continue|compact)"
)


def build_application(context: AppContext, policy: AccessPolicy) -> ASGIApp:
    """Return the ASGI application."""
    # They are the operator's, and who reads a conversation is not.
    context.dial.skills.shows_folders = False
    routes, rates = build_routes(context), RequestRates(context.peers)

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        person: Person | None = scope.get("state", {}).get(PERSON)
        if person is not None:
            _admit(person, rates, context.dial.credentials)
        # Whatever answers the request finds the servers of its person, and of nobody else.
        with act_for(person.name if person is not None else ""):
            route = _find_route(routes, scope)
            is_application = route.app is route.endpoint
            response = route.app if is_application else await route.endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

    limits, usage = context.operations.limits, context.usage
    if limits is None or usage is None:
        return RequestLog(SecurityMiddleware(respond, policy), context.operations)
    limits.count_request = rates.take
    context.turns.find_limit = lambda owner: limits.find(owner).turns
    context.turns.shared = SharedPlaces(context.peers) if context.peers is not None else None
    context.dial.limit_servers(limits.may_use_server)
    context.dial.parts.servers.find_tool_patterns = lambda owner: limits.find(owner).tools

    async def respond_within_limits(scope: Scope, receive: Receive, send: Send) -> None:
        person: Person | None = scope.get("state", {}).get(PERSON)
        if person is None:  # the page's files, and what needs no token
            await respond(scope, receive, send)
            return
        with limits.admit(person):
            if scope["method"] == "POST" and _ASKS_A_MODEL.fullmatch(scope["path"]):
                await limits.check_budget(person.name, usage)
            await respond(scope, receive, send)

    return RequestLog(SecurityMiddleware(respond_within_limits, policy), context.operations)


def _admit(person: Person, rates: RequestRates, stored: object) -> None:
    """Count a request with a token that has a limit of its own; keep an ID token for the logins of its person.

    Raises:
        HttpError: The token's requests of this minute are used up.
    """
    if person.id_token and isinstance(stored, StoredCredentials):
        stored.keep_id_token(person.name, person.id_token)
    rate = person.requests_per_minute
    if rate and (seconds := rates.take(f"token:{person.token_id}", rate)):
        message = f"this token has sent its {rate} requests of a minute: try again in {seconds} s"
        headers = {"retry-after": str(seconds)}
        raise HttpError(429, message, "rate_limit_exceeded", kind="rate_limit_error", headers=headers)


def build_routes(context: AppContext) -> list[Route]:
    """Return the routes of the API, as in docs/openapi.yaml, and the routes of the page's files."""
    dial, turns, model, durable = context.dial, context.turns, context.model, context.durable
    manager = (
        durable.manager
        if durable
        else ConversationManager(
            dial, context.store, when_busy="refuse", locked_settings=context.locked_settings, observers=(turns,)
        )
    )
    readiness = Readiness(turns, context.store, context.operations)
    values = context.store.values if isinstance(context.store, SQLStore) else None
    remote_turns = RemoteTurns(context.peers, manager.find_turn, turns, model) if context.peers else None
    files = StaticFiles()
    answers = AnswerTurns(dial, turns, values)
    starter = TurnStarter(dial, manager, durable or manager, turns, model, context.titles)
    models = ModelNames(dial, model, is_locked="model" in context.locked_settings)
    return [
        Route(HEALTH, _report_health),
        Route(READY, partial(_report_readiness, readiness), methods=["GET"]),
        Route("/metrics", partial(_report_metrics, context.operations.metrics), methods=["GET"]),
        Route("/me", _describe_person, methods=["GET"]),
        Route("/", files.send_index),
        Route("/assets/{name:path}", files.send_asset),
        *ChatCompletionsEndpoint(dial, answers, models).build_routes(),
        *ResponsesEndpoint(dial, answers, models, ResponseStore(values)).build_routes(),
        *MessagesEndpoint(dial, answers, models).build_routes(),
        *ConversationRoutes(dial, manager, turns, model, remote_turns, context.shares, starter).build_routes(),
        *FrontEndRoutes(starter, context.human_input, remote_turns).build_routes(),
        *FeatureRoutes(dial, manager, context.human_input, model, context.locked_settings).build_routes(),
        *ServerRoutes(dial, context.change_config, context.logins).build_routes(),
        *_build_credential_routes(context),
        *AccessRoutes(dial, context.human_input.requests, context.operations.audit_folder).build_routes(),
        *(ShareRoutes(manager, files).build_routes() if context.shares else ()),
        *UsageRoutes(context.usage, context.operations.limits).build_routes(),
        *context.human_input.build_routes(),
        *(context.login.build_routes() if context.login is not None else ()),
        *(context.mcp.build_routes() if context.mcp is not None else ()),
    ]


def _build_credential_routes(context: AppContext) -> list[Route]:
    stored = context.dial.credentials
    if not isinstance(stored, StoredCredentials):  # a program's own, which persons give to that program
        return []
    return CredentialRoutes(context.dial, stored, context.logins).build_routes()


async def _report_health(request: Request) -> Response:  # noqa: ARG001 - the response is the same for every request
    return build_json_response({"status": "ok"})


async def _report_readiness(readiness: Readiness, request: Request) -> Response:  # noqa: ARG001 - as above
    """Answer 503 with what is missing, so that a proxy sends requests to another process."""
    missing = await readiness.find_missing()
    status = {"status": "not ready", "missing": missing} if missing else {"status": "ok"}
    return build_json_response(status, 503 if missing else 200, {"retry-after": "5"} if missing else {})


async def _report_metrics(metrics: ServiceMetrics | None, request: Request) -> Response:
    if metrics is None:
        raise HttpError(404, "this service has no metrics: dial-chat serve --metrics", "not_found")
    content, media_type = metrics.encode(request.headers.get("accept", ""))
    return Response(content, headers={"content-type": media_type})


async def _describe_person(request: Request) -> Response:
    person = find_person(request)
    shown = {"name": person.name, "shown_name": person.shown_name or person.name, "scopes": sorted(person.scopes)}
    return build_json_response(shown)


def _find_route(routes: Sequence[Route], scope: Scope) -> Route:
    """Return the route of a request, whose parameters in the path become part of `scope`.

    Starlette's `Router` would name the methods of one route only, and a path may have several; and a stream would hold
    its frames as long as it is open, which take 3 KB.

    Raises:
        HttpError: There is no such path.
        HTTPException: The path has other methods.
    """
    refusing: list[Route] = []
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            return route
        if match is Match.PARTIAL:
            refusing.append(route)
    if not refusing:
        raise build_path_error(scope["path"])
    # The first path is the most specific one: /conversations/import is also a /conversations/{id}.
    methods = {name for route in refusing if route.path == refusing[0].path for name in route.methods or ()}
    raise HTTPException(405, headers={"allow": ", ".join(sorted(methods))})
