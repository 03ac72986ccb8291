"""All that is served, put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from dial_client.client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.durable import DurableTurns
from dial_client.serve.cluster.peers import PeerBus
from dial_client.serve.cluster.remote_turns import RemoteTurns
from dial_client.serve.conversation_routes import ConversationRoutes
from dial_client.serve.http_responses import HttpError, answered
from dial_client.serve.human_input import APPROVAL, QUESTION, HumanInputBroker
from dial_client.serve.openai_endpoint import ChatCompletionsEndpoint
from dial_client.serve.request_bodies import json_of
from dial_client.serve.security import HEALTH, AccessPolicy, SecurityMiddleware
from dial_client.serve.static_files import StaticFiles
from dial_client.serve.turn_registry import TurnRegistry
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.sql_store import SQLStore


@dataclass(frozen=True, slots=True)
class AppContext:
    """What a server is made of."""

    dial: DialClient
    """Answers; open. Its approver is the desk."""
    store: ConversationStore
    desk: HumanInputBroker
    turns: TurnRegistry
    model: str
    """The name by which its model is known here."""
    durable: DurableTurns | None = None
    """Carries out the turns of conversations; None where they end with this process."""
    elsewhere: PeerBus = field(kw_only=True)
    """The other processes; it knows the turns, and the desk knows it."""


def application(house: AppContext, rules: AccessPolicy) -> ASGIApp:
    """Give the ASGI application."""
    durable = house.durable
    manager = durable.manager if durable else ConversationManager(house.dial, house.store, when_busy="refuse")
    shared = house.store if isinstance(house.store, SQLStore) else None
    others = RemoteTurns(shared, house.elsewhere) if shared else None
    pages = StaticFiles()
    routes = [
        Route(HEALTH, _health),
        Route("/", pages.index),
        Route("/assets/{name}", pages.asset),
        *ChatCompletionsEndpoint(house.dial, house.turns, house.model, shared.board if shared else None).routes(),
        *ConversationRoutes(house.dial, manager, house.turns, house.model, durable, others).routes(),
        *_Host(house.dial).routes(),
        *_People(house.desk).routes(),
    ]
    return SecurityMiddleware(Router(routes, redirect_slashes=False, default=_nothing), rules)


async def _health(request: Request) -> Response:  # noqa: ARG001 - it is the same for everybody
    return answered({"status": "ok"})


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    raise HttpError(404, "there is nothing at this address", "not_found")


class _Host:
    """The servers and their tools."""

    def __init__(self, dial: DialClient) -> None:
        self._dial = dial

    def routes(self) -> list[Route]:
        return [
            Route("/servers", self._servers),
            Route("/servers/{name:path}/restart", self._restart, methods=["POST"]),
            Route("/tools", self._tools),
        ]

    async def _servers(self, request: Request) -> Response:  # noqa: ARG002
        return answered({"servers": [status.to_dict() for status in self._dial.servers.values()]})

    async def _restart(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._dial.servers:
            raise HttpError(404, f"there is no server {name!r}", "not_found")
        await self._dial.restart_server(name)
        return Response(status_code=204)

    async def _tools(self, request: Request) -> Response:  # noqa: ARG002
        said: list[dict[str, Any]] = [
            {
                "name": tool.name,
                "description": tool.description,
                "server": tool.server,
                "title": tool.title,
                "read_only": tool.read_only,
            }
            for tool in self._dial.tools
        ]
        return answered({"tools": said})


class _People:
    """What waits for a person."""

    def __init__(self, desk: HumanInputBroker) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        return [
            Route("/approvals", self._approvals),
            Route("/approvals/{id}", self._decide, methods=["POST"]),
            Route("/questions", self._questions),
            Route("/questions/{id}", self._answer, methods=["POST"]),
        ]

    async def _approvals(self, request: Request) -> Response:  # noqa: ARG002
        return answered({"approvals": await self._desk.pending(APPROVAL)})

    async def _questions(self, request: Request) -> Response:  # noqa: ARG002
        return answered({"questions": await self._desk.pending(QUESTION)})

    async def _decide(self, request: Request) -> Response:
        said = await json_of(request)
        await self._desk.decide(request.path_params["id"], said.get("decision"), said.get("reason", ""))
        return Response(status_code=204)

    async def _answer(self, request: Request) -> Response:
        said = await json_of(request)
        await self._desk.answer(request.path_params["id"], said.get("action"), said.get("content") or {})
        return Response(status_code=204)
