"""The conversations over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.durable import DurableTurns
from dial_client.events import StatusChanged
from dial_client.messages import Content, TextPart, text_of
from dial_client.serve.chat_completion_request import content_of
from dial_client.serve.cluster.remote_turns import RemoteTurns
from dial_client.serve.http_responses import HttpError, answered
from dial_client.serve.request_bodies import json_of
from dial_client.serve.sse_response import SSEResponse, of_turn, position
from dial_client.serve.turn_registry import TurnRegistry
from dial_client.stores.conversation_store import Conversation, ConversationSummary
from dial_client.turns.turn_handle import TurnHandle

MAX_LISTED = 200
_FILES = {"json": ("application/json", "json"), "markdown": ("text/markdown; charset=utf-8", "md")}


class ConversationRoutes:
    """Answers under ``/conversations``.

    Args:
        dial: answers; open.
        manager: keeps the conversations.
        turns: those that are under way.
        model: the name by which the model is known here.
        durable: carries them out where they outlive this process; its manager is this one.
        others: the turns of other processes; None where there are none.
    """

    def __init__(
        self,
        dial: DialClient,
        manager: ConversationManager,
        turns: TurnRegistry,
        model: str,
        durable: DurableTurns | None = None,
        others: RemoteTurns | None = None,
    ) -> None:
        self._dial = dial
        self._manager = manager
        self._start = manager.start if durable is None else durable.begin
        self._read = manager.get if durable is None else durable.get
        self._turns = turns
        self._model = model
        self._others = others

    def routes(self) -> list[Route]:
        """Give the addresses."""
        one = "/conversations/{id}"
        return [
            Route("/conversations", self._list, methods=["GET"]),
            Route("/conversations", self._create, methods=["POST"]),
            Route("/conversations/import", self._import, methods=["POST"]),
            Route(one, self._get, methods=["GET"]),
            Route(one, self._rename, methods=["PATCH"]),
            Route(one, self._delete, methods=["DELETE"]),
            Route(f"{one}/fork", self._fork, methods=["POST"]),
            Route(f"{one}/export", self._export, methods=["GET"]),
            Route(f"{one}/chat", self._chat, methods=["POST"]),
            Route(f"{one}/stop", self._stop, methods=["POST"]),
            Route(f"{one}/turns/{{turn}}/events", self._events, methods=["GET"]),
        ]

    async def _list(self, request: Request) -> Response:
        asked = request.query_params
        limit = asked.get("limit", "50")
        if not (limit.isascii() and limit.isdigit() and 0 < int(limit) <= MAX_LISTED):
            raise HttpError(400, f"limit is a number from 1 to {MAX_LISTED}", "bad_limit", param="limit")
        page = await self._manager.list(int(limit), cursor=asked.get("cursor") or None, search=asked.get("search", ""))
        return answered(
            {"conversations": [_heading(one) | {"running": one.running} for one in page], "cursor": page.cursor}
        )

    async def _create(self, request: Request) -> Response:
        title = _text(await json_of(request), "title", "")
        return answered(_whole(await self._manager.create(title)), 201)

    async def _import(self, request: Request) -> Response:
        text = (await request.body()).decode(errors="replace")
        return answered(_whole(await self._manager.import_json(text)), 201)

    async def _get(self, request: Request) -> Response:
        return answered(_whole(await self._read(_id(request))))

    async def _rename(self, request: Request) -> Response:
        await self._manager.rename(_id(request), _text(await json_of(request), "title"))
        return answered(_whole(await self._manager.get(_id(request))))

    async def _delete(self, request: Request) -> Response:
        await self._manager.delete(_id(request))
        return Response(status_code=204)

    async def _fork(self, request: Request) -> Response:
        at = (await json_of(request)).get("at")
        if at is not None and (not isinstance(at, int) or isinstance(at, bool)):
            raise HttpError(400, "at is a number of messages", "bad_number", param="at")
        return answered(_whole(await self._manager.fork(_id(request), at)), 201)

    async def _export(self, request: Request) -> Response:
        form = request.query_params.get("format", "json")
        if form not in _FILES:
            raise HttpError(400, "format is json or markdown", "bad_format", param="format")
        text = await self._manager.export(_id(request), cast("Literal['json', 'markdown']", form))
        kind, ending = _FILES[form]
        name = "".join(char for char in _id(request) if char.isalnum())[:40] or "conversation"
        disposition = f'attachment; filename="{name}.{ending}"'
        return Response(text, headers={"content-type": kind, "content-disposition": disposition})

    async def _chat(self, request: Request) -> Any:
        said = await json_of(request)
        content, stream = _said(said), said.get("stream", True)
        del said  # a copy of the images and documents in it
        with self._turns.place():
            attached = await self._dial.attach(content)
            live = await self._start(_id(request), attached.message, stream=bool(stream))
            self._turns.keep(live)
        for note in attached.notes:
            live.announce(StatusChanged(note))
        headers = {"x-turn-id": live.id}
        if stream:
            return SSEResponse(of_turn(live, 0, self._model), headers)
        return answered((await live.result()).to_dict(), headers=headers)

    async def _stop(self, request: Request) -> Response:
        live = self._manager.find_turn(_id(request))
        if live is not None and not live.over:
            live.cancel()
            return Response(status_code=204)
        if not (await self._manager.get(_id(request))).running:
            if (await self._read(_id(request))).running:
                why = "the turn waits for a process to go on with it: ask again when it runs"
                raise HttpError(409, why, "not_running_yet", headers={"retry-after": "2"})
        elif self._others is None or not await self._others.stop(_id(request)):
            raise HttpError(409, "the turn runs in a program that hears of no other: stop it there", "runs_elsewhere")
        return Response(status_code=204)

    async def _events(self, request: Request) -> SSEResponse:
        turn = request.path_params["turn"]
        live: TurnHandle | None = self._manager.find_turn(_id(request), turn)
        after = position(request.headers.get("last-event-id"), turn)
        if live is not None and live.over:
            await self._manager.get(_id(request))  # of one that was deleted nothing is read any more
        if live is not None:
            lines: AsyncGenerator[str, None] | None = of_turn(live, after, self._model)
        else:
            lines = await self._others.events(_id(request), turn, after) if self._others is not None else None
        if lines is None:
            raise HttpError(404, "the events of this turn are not to be had: read the conversation", "turn_not_found")
        return SSEResponse(lines, {"x-turn-id": turn})


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _text(said: dict[str, Any], name: str, otherwise: str | None = None) -> str:
    value = said.get(name, otherwise)
    if not isinstance(value, str):
        raise HttpError(400, f"{name} is a text", "bad_text", param=name)
    return value


def _said(said: dict[str, Any]) -> Content:
    """Read what is said: a text, or ``content`` as OpenAI's clients send it, images and documents in it."""
    if said.get("content") is None:
        content: Content = _text(said, "text")
    elif said.get("text") is None:
        content = content_of(said["content"], "content")
    else:
        raise HttpError(400, "it is said either in text or in content", "said_twice", param="content")
    is_text = isinstance(content, str) or all(isinstance(part, TextPart) for part in content)
    if is_text and not text_of(content).strip():
        raise HttpError(400, "text or content is what is said", "nothing_said", param="text")
    return content


def _heading(one: Conversation | ConversationSummary) -> dict[str, Any]:
    return {
        "id": one.id,
        "title": one.title,
        "created": one.created_at.isoformat(),
        "updated": one.updated_at.isoformat(),
    }


def _whole(one: Conversation) -> dict[str, Any]:
    return _heading(one) | {
        "messages": [message.to_dict() for message in one.messages],
        "running": one.turn if one.running else None,
        "notes": list(one.notes),
    }
