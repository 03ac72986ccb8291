"""The routes that the clients of other front ends are pointed at: ``/ag-ui`` and ``/ai-sdk/chat``.

Such a client has one URL for all chats, and names the chat in its requests; so these are not the paths of
conversations. A chat's conversation has an id made of the chat's and of its owner, unless the chat's id is already
that of a conversation. A stream ends where a person has to answer; the next request has the answer, and goes on there.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.conversations.turn_input import ConversationInput, EditedMessage, Regeneration
from dial_client.messages.errors import ConversationNotFound
from dial_client.messages.events import InputRequested
from dial_client.messages.message import Message, Role
from dial_client.serve.authentication import AG_UI, AI_SDK, APPROVE
from dial_client.serve.front_ends.ag_ui_request import parse_run_input
from dial_client.serve.front_ends.ai_sdk_request import parse_ai_sdk_request
from dial_client.serve.front_ends.chat_request import ChatRequest
from dial_client.serve.http_messages import HttpError, build_preflight_response, read_json
from dial_client.serve.human_input import APPROVAL, HumanInputBroker
from dial_client.serve.security import find_person, select_owned
from dial_client.serve.sse_response import SSEResponse
from dial_client.serve.turn_starter import TurnStarter
from dial_client.sinks import ai_sdk_stream
from dial_client.sinks.ag_ui_stream import AgUiEncoder
from dial_client.sinks.ai_sdk_stream import AiSdkEncoder
from dial_client.sinks.turn_frames import TurnEncoder, parse_request_id
from dial_client.turns.turn_handle import TurnHandle


@dataclass(frozen=True)
class FrontEndRoutes:
    """The routes of the front ends."""

    _starter: TurnStarter
    _human_input: HumanInputBroker

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(AG_UI, self._run_agent, methods=["POST", "OPTIONS"]),
            Route(AI_SDK, self._chat, methods=["POST", "OPTIONS"]),
            Route(f"{AI_SDK}/{{chat}}/stream", self._reconnect, methods=["GET", "OPTIONS"]),
        ]

    async def _run_agent(self, request: Request) -> Any:
        if request.method == "OPTIONS":
            return build_preflight_response(request.headers)
        asked = parse_run_input(await read_json(request))
        turn, after = await self._find_turn(request, asked)
        encoder = AgUiEncoder(turn.id, asked.chat, asked.run)
        return _respond(turn, encoder, after, keeps_running=asked.keeps_running)

    async def _chat(self, request: Request) -> Any:
        if request.method == "OPTIONS":
            return build_preflight_response(request.headers)
        asked = parse_ai_sdk_request(await read_json(request))
        turn, after = await self._find_turn(request, asked)
        return _respond(turn, _build_ai_sdk(turn), after, keeps_running=asked.keeps_running)

    async def _reconnect(self, request: Request) -> Any:
        """Send the running turn of a chat from its start, as `useChat({resume: true})` asks; 204 if there is none."""
        if request.method == "OPTIONS":
            return build_preflight_response(request.headers)
        turn = None
        with suppress(ConversationNotFound):
            conversation_id = await self._find_conversation(request, request.path_params["chat"])
            turn = select_owned(self._starter.manager, request).find_turn(conversation_id)
        if turn is None or turn.has_ended:
            return Response(status_code=204)
        return _respond(turn, _build_ai_sdk(turn), 0, keeps_running=True)

    async def _find_turn(self, request: Request, asked: ChatRequest) -> tuple[TurnHandle, int]:
        """Return the turn that a request starts or answers, and the position in its log after which to go on.

        Raises:
            DialError: The conversation cannot go on.
            HttpError: The request cannot be fulfilled.
        """
        if not asked.answers:
            return await self._start(request, asked), 0
        conversation_id = await self._find_conversation(request, asked.chat)
        turn = select_owned(self._starter.manager, request).find_turn(conversation_id)
        if turn is None:
            message = "the turn that asked does not run in this process any more: send a new message"
            raise HttpError(409, message, "turn_not_found")
        await self._answer(request, turn, asked.answers)
        return turn, max(parse_request_id(id_)[1] for id_ in asked.answers)

    async def _answer(self, request: Request, turn: TurnHandle, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Deliver the answers; those to requests that have an answer already are without effect."""
        person = find_person(request)
        if APPROVE not in person.scopes:
            raise HttpError(403, "answers need a token with the scope approve", "insufficient_scope")
        kinds = {event.id: event.kind for _, event in turn.log.since(0) if isinstance(event, InputRequested)}
        for id_, body in answers.items():
            request_id = parse_request_id(id_)[0]
            deliver = self._human_input.decide if kinds.get(request_id) == APPROVAL else self._human_input.answer
            try:
                await deliver(person, request_id, body)
            except HttpError as error:
                if error.status != 404:
                    raise

    async def _start(self, request: Request, asked: ChatRequest) -> TurnHandle:
        message, notes = await self._starter.attach(request, asked.content)
        manager = select_owned(self._starter.manager, request)
        try:
            conversation_id = await self._find_conversation(request, asked.chat)
        except ConversationNotFound as error:
            if asked.earlier:
                problem = "this service does not have the earlier messages of this chat: begin a new chat"
                raise HttpError(409, problem, "unknown_chat") from error
            conversation_id = (await manager.create(conversation_id=error.conversation_id)).id
        turn_input: ConversationInput = message
        if asked.replaces or asked.regenerates:
            view = await manager.view(conversation_id)
            questions = [
                position
                for shown, position in zip(view.conversation.messages, view.positions, strict=True)
                if shown.role is Role.USER and not shown.steers and position is not None
            ]
            # A question that the model's endpoint refused is not in the conversation, but the front end has it.
            if asked.earlier < len(questions):
                turn_input = _change(questions[asked.earlier], message, asked)
        return await self._starter.start(request, conversation_id, turn_input, notes=notes)

    async def _find_conversation(self, request: Request, chat: str) -> str:
        """Return the id of a chat's conversation.

        Raises:
            ConversationNotFound: There is none, with the id that it is to get.
            HttpError: The id of the chat is empty.
        """
        if not chat:
            raise HttpError(400, "the id of the chat must not be empty", "bad_text")
        manager = select_owned(self._starter.manager, request)
        derived = hashlib.sha256(f"{find_person(request).name}\n{chat}".encode(errors="replace")).hexdigest()[:32]
        for id_ in (chat, derived) if chat.isascii() and chat.isprintable() else (derived,):
            with suppress(ConversationNotFound):
                await manager.read_state(id_)
                return id_
        raise ConversationNotFound(derived)


def _change(position: int, message: Message, asked: ChatRequest) -> ConversationInput:
    return Regeneration(position) if asked.regenerates else EditedMessage(position, message)


def _build_ai_sdk(turn: TurnHandle) -> AiSdkEncoder:
    return AiSdkEncoder(turn.id, {"conversationId": turn.conversation_id})


def _respond(turn: TurnHandle, encoder: TurnEncoder, after: int, *, keeps_running: bool) -> SSEResponse:
    headers = {"x-turn-id": turn.id, "x-conversation-id": turn.conversation_id}
    if isinstance(encoder, AiSdkEncoder):
        headers |= ai_sdk_stream.HEADERS
    return SSEResponse(_stream(turn, encoder, after, keeps_running=keeps_running), headers)


async def _stream(
    turn: TurnHandle, encoder: TurnEncoder, after: int, *, keeps_running: bool
) -> AsyncGenerator[str, None]:
    """Yield a turn's events after a position at which it waited, until it ends or waits for a person again."""
    is_skipping, is_over, failure = after > 0, False, None
    try:
        if not is_skipping:
            yield encoder.begin()
        try:
            async with aclosing(turn.log.events()) as events:
                async for position, event in events:
                    text = encoder.encode(event, position)
                    if is_skipping:
                        if position >= after and encoder.frames.is_waiting:
                            is_skipping = False
                            yield encoder.begin()
                        continue
                    if text:
                        yield text
                    if encoder.frames.is_waiting:
                        is_over = True
                        yield encoder.pause()
                        return
        except Exception as error:  # noqa: BLE001 - any failure must end the stream for the client
            failure = error
        is_over = True
        yield (encoder.begin() if is_skipping else "") + encoder.end(failure)
    finally:
        # A front end stops a turn by closing its connection. It has no other way.
        if not is_over and not keeps_running:
            turn.cancel()
