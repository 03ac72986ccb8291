"""All that is served, put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from dial_client.client import DialClient
from dial_client.conversations import ConversationManager
from dial_client.durable import DurableTurns
from dial_client.serve.answers import Refusal, answered
from dial_client.serve.asking_people import APPROVAL, QUESTION, Desk
from dial_client.serve.completions import Completions
from dial_client.serve.door import HEALTH, Door, Rules
from dial_client.serve.elsewhere import Elsewhere
from dial_client.serve.others import Others
from dial_client.serve.pages import Pages
from dial_client.serve.request_bodies import json_of
from dial_client.serve.talking import Talking
from dial_client.serve.turns import Turns
from dial_client.store import ConversationStore
from dial_client.stores.sql import SQLStore


@dataclass(frozen=True, slots=True)
class House:
    """What a server is made of."""

    dial: DialClient
    """Answers; open. Its approver is the desk."""
    store: ConversationStore
    desk: Desk
    turns: Turns
    model: str
    """The name by which its model is known here."""
    durable: DurableTurns | None = None
    """Carries out the turns of conversations; None where they end with this process."""
    elsewhere: Elsewhere = field(kw_only=True)
    """The other processes; it knows the turns, and the desk knows it."""


def application(house: House, rules: Rules) -> ASGIApp:
    """Give the ASGI application."""
    durable = house.durable
    manager = durable.manager if durable else ConversationManager(house.dial, house.store, when_busy="refuse")
    shared = house.store if isinstance(house.store, SQLStore) else None
    others = Others(shared, house.elsewhere) if shared else None
    pages = Pages()
    routes = [
        Route(HEALTH, _health),
        Route("/", pages.index),
        Route("/assets/{name}", pages.asset),
        *Completions(house.dial, house.turns, house.model, shared.board if shared else None).routes(),
        *Talking(house.dial, manager, house.turns, house.model, durable, others).routes(),
        *_Host(house.dial).routes(),
        *_People(house.desk).routes(),
    ]
    return Door(Router(routes, redirect_slashes=False, default=_nothing), rules)


async def _health(request: Request) -> Response:  # noqa: ARG001 - it is the same for everybody
    return answered({"status": "ok"})


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    raise Refusal(404, "there is nothing at this address", "not_found")


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
            raise Refusal(404, f"there is no server {name!r}", "not_found")
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

    def __init__(self, desk: Desk) -> None:
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
