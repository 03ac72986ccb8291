"""The HTTP API for conversations: messages and turns, versions of messages, and edits of the history.

MCP Apps add text to the user's next message (``ui/update-model-context``): the contexts of a message.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.conversations.conversation_view import ConversationView
from dial_client.conversations.turn_input import Continuation, ConversationInput, EditedMessage, Regeneration
from dial_client.messages.errors import ConversationBusy, StoreUnavailable
from dial_client.messages.message import Content, Message, TextPart, extract_text
from dial_client.runtime.logs import get_logger
from dial_client.serve.added_contexts import MAX_CONTEXT, MAX_CONTEXTS, AddedContext, add_contexts, build_context
from dial_client.serve.http_messages import (
    HttpError,
    build_json_response,
    parse_number,
    read_flag,
    read_json,
    read_limit,
    read_string,
)
from dial_client.serve.model_api.message_parts import parse_content
from dial_client.serve.people.owner_limits import check_model
from dial_client.serve.routes.share_routes import LINK, SHARED_MARK
from dial_client.serve.security import find_person, select_owned
from dial_client.serve.sse_response import SSEResponse, parse_last_event_id, stream_turn
from dial_client.serve.title_writer import TITLE_USAGE
from dial_client.serve.turn_starter import TurnStarter
from dial_client.serve.turns.remote_turns import RemoteTurns
from dial_client.serve.turns.turn_registry import ServedModel, TurnRegistry
from dial_client.stores.conversation_store import Conversation, ConversationSummary

log = get_logger(__name__)

# The most conversations of one list.
MAX_LIMIT = 200
# Seconds in which a turn that is stopped must have ended and be stored: beyond that the client is told to ask again.
STOP_TIMEOUT = 5.0
# For each format the media type and the file name extension.
_EXPORTS = {"json": ("application/json", "json"), "markdown": ("text/markdown; charset=utf-8", "md")}
# What a person marks in the list; the names in the metadata of the conversation.
MARKS = ("pinned", "archived")


def read_app_contexts(body: dict[str, Any], servers: Container[str]) -> list[AddedContext]:
    """Return the contexts in the body of a chat request, which apps of servers wrote.

    Raises:
        HttpError: A context is malformed, or names a server that does not exist.
    """
    contexts = body.get("app_contexts") or []
    if not isinstance(contexts, list) or len(contexts) > MAX_CONTEXTS:
        raise _build_error(f"app_contexts must be a list of at most {MAX_CONTEXTS}")
    return [_read_context(context, servers) for context in contexts]


def _read_context(context: Any, servers: Container[str]) -> AddedContext:
    server, text = (context.get("server"), context.get("text")) if isinstance(context, dict) else (None, None)
    if not isinstance(server, str) or server not in servers:
        raise _build_error("a context must name a server")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_CONTEXT:
        raise _build_error(f"a context must have a text of at most {MAX_CONTEXT:,} characters")
    return build_context(server, f"context from an app of the server {server}; the app wrote it", text)


def _build_error(message: str) -> HttpError:
    return HttpError(400, message, "bad_app_contexts", param="app_contexts")


def summary_to_dict(summary: Conversation | ConversationSummary) -> dict[str, Any]:
    """Return ``{"id", "title", "created", "updated", "pinned", "archived", "shared"}``."""
    return {
        "id": summary.id,
        "title": summary.title,
        **{mark: summary.metadata.get(mark) is True for mark in (*MARKS, SHARED_MARK)},
        "created": summary.created_at.isoformat(),
        "updated": summary.updated_at.isoformat(),
    }


def _message_to_dict(message: Message) -> dict[str, Any]:
    """Return a message as JSON, without the variables of a program, and without the messages of an agent that waits."""
    pending, message = message.pending, message.without_kept()
    if pending is not None:
        message = replace(message, pending=replace(pending, snippet=None, messages=()))
    return message.to_dict()


def view_to_dict(view: ConversationView) -> dict[str, Any]:
    """Return a conversation with its messages, their positions and versions, and the details of its turns."""
    conversation = view.conversation
    return summary_to_dict(conversation) | {
        "messages": [_message_to_dict(message) for message in conversation.messages],
        "running": conversation.turn if conversation.running else None,
        "notes": list(conversation.notes),
        "settings": dict(view.settings or {}),
        **view.to_dict(),
    }


@dataclass
class ConversationRoutes:
    """The routes under ``/conversations``."""

    _dial: DialClient
    _manager: ConversationManager
    # The running turns of this process.
    _turns: TurnRegistry
    _model: ServedModel
    # The turns of other processes; None without a shared database.
    _remote_turns: RemoteTurns | None
    # Whether conversations can be shared by a link.
    _can_share: bool
    _starter: TurnStarter
    # The conversations whose interrupted turn is being resumed.
    _resuming: set[str] = field(default_factory=set)

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        path = "/conversations/{id}"
        return [
            Route("/conversations", self._list, methods=["GET"]),
            Route("/conversations", self._create, methods=["POST"]),
            Route("/conversations/import", self._import, methods=["POST"]),
            Route(path, self._get, methods=["GET"]),
            Route(path, self._rename, methods=["PATCH"]),
            Route(path, self._delete, methods=["DELETE"]),
            Route(f"{path}/fork", self._fork, methods=["POST"]),
            Route(f"{path}/export", self._export, methods=["GET"]),
            Route(f"{path}/chat", self._chat, methods=["POST"]),
            Route(f"{path}/stop", self._stop, methods=["POST"]),
            Route(f"{path}/turns/{{turn}}/events", self._stream_events, methods=["GET"]),
            Route(f"{path}/state", self._read_state, methods=["GET"]),
            Route(f"{path}/usage", self._read_usage, methods=["GET"]),
            Route(f"{path}/messages", self._list_messages, methods=["GET"]),
            Route(f"{path}/messages/{{position}}", self._remove, methods=["DELETE"]),
            Route(f"{path}/switch", self._switch, methods=["POST"]),
            Route(f"{path}/regenerate", self._regenerate, methods=["POST"]),
            Route(f"{path}/continue", self._continue, methods=["POST"]),
            Route(f"{path}/undo", self._undo, methods=["POST"]),
            Route(f"{path}/restore", self._restore, methods=["POST"]),
            Route(f"{path}/compact", self._compact, methods=["POST"]),
        ]

    def _find_manager(self, request: Request) -> ConversationManager:
        return select_owned(self._manager, request)

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        limit = read_limit(request, MAX_LIMIT)
        if wrong := [mark for mark in MARKS if query.get(mark) not in (None, "", "true", "false")]:
            raise HttpError(400, f"{wrong[0]} must be true or false", "bad_mark", param=wrong[0])
        marks = {mark: query[mark] == "true" for mark in MARKS if query.get(mark)}
        search = query.get("search", "")
        page = await self._find_manager(request).list(
            limit, cursor=query.get("cursor") or None, search=search, marks=marks
        )
        conversations = [
            summary_to_dict(summary) | {"running": summary.running, "preview": summary.preview} for summary in page
        ]
        found = {"conversations": conversations, "cursor": page.cursor, "can_share": self._can_share}
        return build_json_response(found)

    async def _create(self, request: Request) -> Response:
        title = read_string(await read_json(request), "title", "")
        return await self._respond(request, (await self._find_manager(request).create(title)).id, 201)

    async def _import(self, request: Request) -> Response:
        text = (await request.body()).decode(errors="replace")
        return await self._respond(request, (await self._find_manager(request).import_json(text)).id, 201)

    async def _get(self, request: Request) -> Response:
        view = await self._find_manager(request).view(request.path_params["id"])
        if await self._ask_again(request, view.conversation):
            view = await self._find_manager(request).view(view.conversation.id)
        return build_json_response(view_to_dict(view))

    async def _ask_again(self, request: Request, stored: Conversation) -> bool:
        """Resume a turn whose calls waited for approval when its process was killed, so that the user is asked again.

        Nothing of it runs before the user answers. Durable turns are resumed by themselves. Returns False if there is
        no such turn.
        """
        is_interrupted = bool(stored.turn) and not stored.running
        if not is_interrupted or not stored.pending_approvals or stored.id in self._resuming:
            return False
        self._resuming.add(stored.id)
        try:
            with self._turns.reserve(find_person(request).name):
                if (turn := await self._find_manager(request).resume(stored.id)) is not None:
                    self._turns.add(turn)
        except (HttpError, ConversationBusy) as error:  # the conversation can be read in any case
            log.debug("turn_not_resumed", error=type(error).__name__)
        finally:
            self._resuming.discard(stored.id)
        return True

    async def _rename(self, request: Request) -> Response:
        body = await read_json(request)
        marks = {mark: body[mark] for mark in MARKS if mark in body}
        if not all(isinstance(value, bool) for value in marks.values()):
            raise HttpError(400, f"{' and '.join(MARKS)} are true or false", "bad_mark", param=next(iter(marks)))
        title = read_string(body, "title") if "title" in body or not (marks or "settings" in body) else None
        settings: Any = body.get("settings")
        if isinstance(settings, dict) and "model" in settings:
            check_model(str(settings["model"] or self._model.name))
        if marks:
            manager = self._find_manager(request)
            await manager.update(request.path_params["id"], metadata_changes=marks)
        if "settings" in body:
            await self._find_manager(request).update_settings(request.path_params["id"], settings)
        if title is not None:
            await self._find_manager(request).rename(request.path_params["id"], title)
        return await self._respond(request, request.path_params["id"])

    async def _delete(self, request: Request) -> Response:
        await self._find_manager(request).delete(request.path_params["id"])
        return Response(status_code=204)

    async def _fork(self, request: Request) -> Response:
        at = (await read_json(request)).get("at")
        if at is not None and (not isinstance(at, int) or isinstance(at, bool)):
            raise HttpError(400, "at must be a number of messages", "bad_number", param="at")
        manager = self._find_manager(request)
        created = await manager.fork(request.path_params["id"], at)
        # The copy has neither the link of the conversation, nor its marks, nor the cost of its title.
        await manager.update(created.id, metadata_changes=dict.fromkeys((*LINK, *MARKS, TITLE_USAGE)))
        return await self._respond(request, created.id, 201)

    async def _export(self, request: Request) -> Response:
        format_ = request.query_params.get("format", "json")
        if format_ not in _EXPORTS:
            raise HttpError(400, "format must be json or markdown", "bad_format", param="format")
        text = await self._find_manager(request).export(
            request.path_params["id"], cast("Literal['json', 'markdown']", format_)
        )
        media_type, extension = _EXPORTS[format_]
        name = "".join(char for char in request.path_params["id"] if char.isalnum())[:40] or "conversation"
        disposition = f'attachment; filename="{name}.{extension}"'
        return Response(text, headers={"content-type": media_type, "content-disposition": disposition})

    async def _chat(self, request: Request) -> Any:
        body = await read_json(request)
        content, stream = _read_content(body), read_flag(body, "stream", default=True)
        taint = read_string(body, "taint", "")
        if taint and taint not in self._dial.servers:
            raise HttpError(400, "taint must be the name of a server", "bad_taint", param="taint")
        contexts = read_app_contexts(body, self._dial.servers)
        edited_position = read_position(body, "edits")
        del body  # contains a second copy of the images and documents
        attached, notes = await self._starter.attach(request, content)
        message = add_contexts(replace(attached, taint=attached.taint or taint), contexts)
        turn_input = message if edited_position is None else EditedMessage(edited_position, message)
        return await self._start_turn(request, request.path_params["id"], turn_input, stream=stream, notes=notes)

    async def _start_turn(
        self,
        request: Request,
        conversation_id: str,
        turn_input: ConversationInput,
        *,
        stream: bool,
        notes: Sequence[str] = (),
    ) -> Any:
        """Start a turn; return a stream of its events, or without `stream` its result."""
        turn = await self._starter.start(request, conversation_id, turn_input, stream=stream, notes=notes)
        headers = {"x-turn-id": turn.id}
        if stream:
            return SSEResponse(stream_turn(turn, 0, self._model.name), headers)
        return build_json_response((await turn.result()).without_kept().to_dict(), headers=headers)

    async def _respond(self, request: Request, conversation_id: str, status: int = 200) -> Response:
        return build_json_response(view_to_dict(await self._find_manager(request).view(conversation_id)), status)

    async def _stop(self, request: Request) -> Response:
        conversation_id = request.path_params["id"]
        turn = self._find_manager(request).find_turn(conversation_id)
        if turn is not None and not turn.has_ended:
            turn.cancel()
            with anyio.move_on_after(STOP_TIMEOUT) as wait, suppress(Exception):  # its stream has the error
                await turn.result()
            if wait.cancelled_caught or isinstance(turn.failure, StoreUnavailable):
                message = "the turn stops, and its end is not stored yet: try again later"
                raise HttpError(503, message, "not_stored_yet", kind="server_error", headers={"retry-after": "2"})
        elif (await self._find_manager(request).get(conversation_id)).running:
            if not (await self._manager.store.get(conversation_id)).running:
                message = "the turn waits for a process to resume it: try again when it runs"
                raise HttpError(409, message, "not_running_yet", headers={"retry-after": "2"})
            if self._remote_turns is None or not await self._remote_turns.stop(conversation_id):
                message = "the turn runs in a program that cannot be reached from here: stop it there"
                raise HttpError(409, message, "runs_elsewhere")
        return Response(status_code=204)

    async def _stream_events(self, request: Request) -> SSEResponse:
        turn_id = request.path_params["turn"]
        after = parse_last_event_id(request.headers.get("last-event-id"), turn_id)
        conversation_id, events = request.path_params["id"], None
        if (turn := self._find_manager(request).find_turn(conversation_id, turn_id)) is not None:
            if turn.has_ended:
                await self._find_manager(request).get(conversation_id)  # raises ConversationNotFound if it was deleted
            events = stream_turn(turn, after, self._model.name)
        elif self._remote_turns is not None:
            await self._find_manager(request).read_state(
                conversation_id
            )  # raises ConversationNotFound if it is foreign
            events = await self._remote_turns.find_events(conversation_id, turn_id, after)
        if events is None:
            message = "the events of this turn are not available: read the conversation"
            raise HttpError(404, message, "turn_not_found")
        return SSEResponse(events, {"x-turn-id": turn_id})

    async def _read_state(self, request: Request) -> Response:
        return build_json_response({"state": await self._find_manager(request).read_state(request.path_params["id"])})

    async def _read_usage(self, request: Request) -> Response:
        """Return what fills the model's context window, and what all turns and the title have used so far."""
        report = await self._find_manager(request).measure_context(request.path_params["id"])
        view = await self._find_manager(request).view(request.path_params["id"])
        context = asdict(report) | {"tokens": report.tokens}
        usage = dict(view.usage or {})
        for name, number in (view.conversation.metadata.get(TITLE_USAGE) or {}).items():
            if name in ("input_tokens", "output_tokens", "cost_usd"):
                usage[name] = usage.get(name, 0) + number
        return build_json_response({"context": context, "usage": usage})

    async def _list_messages(self, request: Request) -> Response:
        return build_json_response(
            {"messages": await self._find_manager(request).list_messages(request.path_params["id"])}
        )

    async def _remove(self, request: Request) -> Response:
        position = parse_number(request.path_params["position"])
        if position is None:
            raise HttpError(400, "the path must end with the position of a message", "bad_number", param="position")
        await self._find_manager(request).remove_message(request.path_params["id"], position)
        return await self._respond(request, request.path_params["id"])

    async def _switch(self, request: Request) -> Response:
        position = read_position(await read_json(request), "message")
        if position is None:
            raise HttpError(400, "message must be the position of a message", "bad_number", param="message")
        await self._find_manager(request).switch(request.path_params["id"], position)
        return await self._respond(request, request.path_params["id"])

    async def _regenerate(self, request: Request) -> Any:
        body = await read_json(request)
        turn_input = Regeneration(read_position(body, "message"))
        return await self._start_turn(
            request, request.path_params["id"], turn_input, stream=read_flag(body, "stream", default=True)
        )

    async def _continue(self, request: Request) -> Any:
        body = await read_json(request)
        return await self._start_turn(
            request, request.path_params["id"], Continuation(), stream=read_flag(body, "stream", default=True)
        )

    async def _undo(self, request: Request) -> Response:
        await self._find_manager(request).undo(request.path_params["id"])
        return await self._respond(request, request.path_params["id"])

    async def _restore(self, request: Request) -> Response:
        edit = (await read_json(request)).get("edit", "undo")
        if edit not in ("undo", "compact"):
            raise HttpError(400, "edit must be undo or compact", "bad_text", param="edit")
        await self._find_manager(request).restore(request.path_params["id"], edit)
        return await self._respond(request, request.path_params["id"])

    async def _compact(self, request: Request) -> Response:
        await self._starter.check_model(request, request.path_params["id"])
        compaction = await self._find_manager(request).compact(request.path_params["id"])
        note = {"note": compaction.note} if compaction is not None else {}
        return build_json_response(
            view_to_dict(await self._find_manager(request).view(request.path_params["id"])) | note
        )


def _read_content(body: dict[str, Any]) -> Content:
    """Return the message's content: the field ``text``, or ``content`` in the format of OpenAI's API."""
    if body.get("content") is None:
        content: Content = read_string(body, "text")
    elif body.get("text") is None:
        content = parse_content(body["content"], "content")
    else:
        raise HttpError(400, "send either text or content", "text_and_content", param="content")
    is_text = isinstance(content, str) or all(isinstance(part, TextPart) for part in content)
    if is_text and not extract_text(content).strip():
        raise HttpError(400, "text or content must not be empty", "empty_message", param="text")
    return content


def read_position(body: dict[str, Any], name: str) -> int | None:
    """Return the position of a message that a request names; None if the field is missing.

    Raises:
        HttpError: The value is not a position.
    """
    value = body.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise HttpError(400, f"{name} must be the position of a message", "bad_number", param=name)
    return value
