"""Conversations that a person shares by a link: everybody who has the link reads them, without the token.

A link shows the conversation as it was when it was shared: stored messages are only ever appended, so the number of
messages at that time is all that has to be kept. What was removed since then is not shown either. The key of the link
is in the fragment of its address, which browsers send to no server, and in no log of a proxy.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.conversations.conversation_view import build_view
from dial_client.conversations.message_tree import build_tree
from dial_client.messages.errors import ConversationNotFound
from dial_client.messages.late_result import read_late_result
from dial_client.messages.message import Message, Role, TextPart
from dial_client.serve.http_messages import HttpError, build_json_response, read_json
from dial_client.serve.security import SHARED, SHARED_CONVERSATION, select_owned
from dial_client.serve.static_files import SHARED_PAGE, StaticFiles
from dial_client.stores.conversation_store import Conversation

# The names in the metadata of a conversation: its link, and the mark by which lists show it.
LINK = _LINK, SHARED_MARK = "share", "shared"
# What a person may show in addition to questions and answers.
_CHOICES = ("tools", "attachments")
# The header with the key of a link.
KEY_HEADER = "x-share-key"
_HEADERS = {"x-robots-tag": "noindex, nofollow, noarchive", "cache-control": "no-store"}


@dataclass
class ShareRoutes:
    """The routes that make, end and read shared conversations."""

    _manager: ConversationManager
    _files: StaticFiles

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        path = "/conversations/{id}/share"
        return [
            Route(path, self._describe, methods=["GET"]),
            Route(path, self._share, methods=["POST"]),
            Route(path, self._end, methods=["DELETE"]),
            Route(SHARED, self._send_page, methods=["GET"]),
            Route(SHARED_CONVERSATION, self._read, methods=["GET"]),
        ]

    async def _describe(self, request: Request) -> Response:
        stored = await select_owned(self._manager, request).get(request.path_params["id"])
        return build_json_response({"link": _describe_link(stored)})

    async def _share(self, request: Request) -> Response:
        """Share the conversation as it is now; a new link ends an earlier one."""
        body = await read_json(request)
        choices = {name: body.get(name, False) for name in _CHOICES}
        if not all(isinstance(value, bool) for value in choices.values()):
            raise HttpError(400, f"{' and '.join(_CHOICES)} are true or false", "bad_share")
        manager = select_owned(self._manager, request)
        stored = await manager.get(request.path_params["id"])
        created = datetime.now(UTC).isoformat(timespec="seconds")
        link = {"key": secrets.token_urlsafe(32), "count": stored.message_count, "created": created, **choices}
        await manager.update(stored.id, metadata_changes={_LINK: link, SHARED_MARK: True})
        return build_json_response({"link": _describe_link(await manager.get(stored.id))}, 201)

    async def _end(self, request: Request) -> Response:
        manager = select_owned(self._manager, request)
        stored = await manager.get(request.path_params["id"])
        await manager.update(stored.id, metadata_changes=dict.fromkeys(LINK))
        return Response(status_code=204)

    async def _send_page(self, request: Request) -> Response:
        response = await self._files.send_page(SHARED_PAGE, request)
        response.headers["x-robots-tag"] = _HEADERS["x-robots-tag"]
        return response

    async def _read(self, request: Request) -> Response:
        """Return a shared conversation. A wrong key, an ended link and an unknown conversation look alike."""
        id_, _, key = request.headers.get(KEY_HEADER, "").partition(".")
        missing = HttpError(404, "this link does not exist, or it was ended", "not_shared", headers=_HEADERS)
        try:
            stored = await self._manager.store.get(id_)
        except ConversationNotFound:
            raise missing from None
        link = stored.metadata.get(_LINK)
        if not isinstance(link, Mapping) or not hmac.compare_digest(key.encode(), str(link["key"]).encode()):
            raise missing
        return build_json_response(build_shared(stored, link), headers=_HEADERS)


def _describe_link(stored: Conversation) -> dict[str, Any] | None:
    link = stored.metadata.get(_LINK)
    if not isinstance(link, Mapping):
        return None
    address = f"{SHARED.removeprefix('/')}#{stored.id}.{link['key']}"
    is_current = link["count"] == stored.message_count
    return {"address": address, "is_current": is_current, **{name: link[name] for name in ("created", *_CHOICES)}}


def build_shared(stored: Conversation, link: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a link shows: ``{"title", "created", "messages"}``, and nothing else of the conversation.

    Instructions, settings, reasoning, names of models and summaries are never shown; calls and their results, and
    attachments, only if the link says so.
    """
    count = link["count"]
    unreadable = tuple(position for position in stored.unreadable if position < count)
    then = replace(
        stored,
        messages=stored.messages[: count - len(unreadable)],
        message_count=count,
        unreadable=unreadable,
        running=False,
        turn="",
        unfinished=(),
    )
    view = build_view(then)
    removed = build_tree(stored).removed
    shown = [
        _to_shared(message, link)
        for message, position in zip(view.conversation.messages, view.positions, strict=True)
        if position is None or position not in removed
    ]
    return {"title": stored.title, "created": link["created"], "messages": [entry for entry in shown if entry]}


def _to_shared(message: Message, link: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parts of a message that a link shows; None if it shows nothing of it. Each field is listed here."""
    data = message.to_dict()
    if message.replaces is not None or message.role is Role.SYSTEM:
        return None
    if not link["tools"] and read_late_result(message) is not None:
        return None
    if message.role is Role.TOOL:
        fields = ("role", "content", "tool_call_id", "name", "is_error")
        return {name: data[name] for name in fields if name in data} if link["tools"] else None
    fields = ("role", "content", "citations", "steers", *(("tool_calls",) if link["tools"] else ()))
    shared = {name: data[name] for name in fields if name in data}
    if message.role is Role.USER and not link["attachments"] and not isinstance(message.content, str):
        own = [part for part in message.content if isinstance(part, TextPart) and not part.foreign]
        shared["content"] = "\n\n".join(part.text for part in own)
    return shared if shared.get("content") or shared.get("tool_calls") else None
