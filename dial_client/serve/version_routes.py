"""The routes that list and switch versions of messages, remove messages, and edit a conversation's history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.conversations.conversation_view import ConversationView
from dial_client.conversations.turn_input import Continuation, ConversationInput, Regeneration
from dial_client.serve.conversation_json import view_to_dict
from dial_client.serve.http_responses import HttpError, build_json_response
from dial_client.serve.request_bodies import read_conversation_id, read_json

_MAX_DIGITS = 10
"""A position has fewer digits."""

ReadView = Callable[[str], Awaitable[ConversationView]]


class StartTurn(Protocol):
    """Starts a turn of a conversation."""

    def __call__(self, conversation_id: str, turn_input: ConversationInput, *, stream: bool) -> Awaitable[Response]:
        """Return the response: a stream of the turn's events, or without `stream` the turn's result."""
        ...


class VersionRoutes:
    """The routes under ``/conversations/{id}`` that change which messages are shown.

    Args:
        manager: Manages the conversations.
        read_view: Returns the view of a conversation.
        start_turn: Starts a turn.
    """

    def __init__(self, manager: ConversationManager, read_view: ReadView, start_turn: StartTurn) -> None:
        self._manager = manager
        self._read_view = read_view
        self._start_turn = start_turn

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        path = "/conversations/{id}"
        return [
            Route(f"{path}/state", self._read_state, methods=["GET"]),
            Route(f"{path}/messages", self._list_messages, methods=["GET"]),
            Route(f"{path}/messages/{{position}}", self._remove, methods=["DELETE"]),
            Route(f"{path}/switch", self._switch, methods=["POST"]),
            Route(f"{path}/regenerate", self._regenerate, methods=["POST"]),
            Route(f"{path}/continue", self._continue, methods=["POST"]),
            Route(f"{path}/undo", self._undo, methods=["POST"]),
            Route(f"{path}/restore", self._restore, methods=["POST"]),
            Route(f"{path}/compact", self._compact, methods=["POST"]),
        ]

    async def _read_state(self, request: Request) -> Response:
        return build_json_response({"state": await self._manager.read_state(read_conversation_id(request))})

    async def _list_messages(self, request: Request) -> Response:
        return build_json_response({"messages": await self._manager.list_messages(read_conversation_id(request))})

    async def _remove(self, request: Request) -> Response:
        position = request.path_params["position"]
        if not (position.isascii() and position.isdigit() and len(position) < _MAX_DIGITS):
            raise HttpError(400, "the path must end with the position of a message", "bad_number", param="position")
        await self._manager.remove_message(read_conversation_id(request), int(position))
        return await self._respond(request)

    async def _switch(self, request: Request) -> Response:
        position = read_position(await read_json(request), "message")
        if position is None:
            raise HttpError(400, "message must be the position of a message", "bad_number", param="message")
        await self._manager.switch(read_conversation_id(request), position)
        return await self._respond(request)

    async def _regenerate(self, request: Request) -> Response:
        body = await read_json(request)
        turn_input = Regeneration(read_position(body, "message"))
        return await self._start_turn(read_conversation_id(request), turn_input, stream=bool(body.get("stream", True)))

    async def _continue(self, request: Request) -> Response:
        body = await read_json(request)
        return await self._start_turn(
            read_conversation_id(request), Continuation(), stream=bool(body.get("stream", True))
        )

    async def _undo(self, request: Request) -> Response:
        await self._manager.undo(read_conversation_id(request))
        return await self._respond(request)

    async def _restore(self, request: Request) -> Response:
        edit = (await read_json(request)).get("edit", "undo")
        if edit not in ("undo", "compact"):
            raise HttpError(400, "edit must be undo or compact", "bad_text", param="edit")
        await self._manager.restore(read_conversation_id(request), edit)
        return await self._respond(request)

    async def _compact(self, request: Request) -> Response:
        compaction = await self._manager.compact(read_conversation_id(request))
        note = {"note": compaction.note} if compaction is not None else {}
        return await self._respond(request, note)

    async def _respond(self, request: Request, extra_fields: dict[str, Any] | None = None) -> Response:
        return build_json_response(
            view_to_dict(await self._read_view(read_conversation_id(request))) | (extra_fields or {})
        )


def read_position(body: dict[str, Any], name: str) -> int | None:
    """Return the position of a message that a request names; None if the field is missing.

    Raises:
        HttpError: The value is not a position.
    """
    value = body.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise HttpError(400, f"{name} must be the position of a message", "bad_number", param=name)
    return value
