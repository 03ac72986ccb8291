"""The routes that the clients of other front ends are pointed at: ``/ag-ui`` and ``/ai-sdk/chat``.

Such a client has one URL for all chats, and names the chat in its requests; so these are not the paths of
conversations. A chat's conversation has an id made of the chat's and of its owner, unless the chat's id is already
that of a conversation. A stream ends where a person has to answer; the next request has the answer, and goes on there.
It also ends with calls of the front end's own tools; the next request has their results, which begin another turn.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.conversations.turn_input import ClientResults, ConversationInput, EditedMessage, Regeneration
from dial_client.messages.errors import ConfigError, ConversationBusy, ConversationNotFound
from dial_client.messages.message import Message, Role
from dial_client.serve.added_contexts import add_contexts, select_new
from dial_client.serve.front_ends.ag_ui_request import parse_run_input
from dial_client.serve.front_ends.ai_sdk_request import parse_ai_sdk_request
from dial_client.serve.front_ends.chat_request import ChatRequest
from dial_client.serve.http_messages import HttpError, build_preflight_response, read_json
from dial_client.serve.people.authentication import AG_UI, AI_SDK, APPROVE
from dial_client.serve.security import find_person, select_owned
from dial_client.serve.sse_response import SSEResponse, read_for_front_end
from dial_client.serve.turn_starter import TurnStarter
from dial_client.serve.turns.human_input import HumanInputBroker
from dial_client.serve.turns.remote_turns import RemoteTurns
from dial_client.sinks import ai_sdk_stream
from dial_client.sinks.stream_forms import StreamForm
from dial_client.sinks.turn_frames import parse_request_id
from dial_client.turns.turn_handle import TurnHandle

# Seconds in which a turn that runs must have stored the results that it began with, and between two looks at it.
_STORED_SECONDS, _LOOK_SECONDS = 3.0, 0.05


@dataclass(frozen=True)
class FrontEndRoutes:
    """The routes of the front ends."""

    _starter: TurnStarter
    _human_input: HumanInputBroker
    # The turns of other processes; None without a shared database.
    _remote_turns: RemoteTurns | None
    # The number of streams of each turn whose front end stops the turn by closing its connection.
    _readers: Counter[str] = field(default_factory=Counter)

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
        return await self._run(request, parse_run_input(await read_json(request)))

    async def _chat(self, request: Request) -> Any:
        if request.method == "OPTIONS":
            return build_preflight_response(request.headers)
        return await self._run(request, parse_ai_sdk_request(await read_json(request)))

    async def _reconnect(self, request: Request) -> Any:
        """Send the running turn of a chat from its start, as `useChat({resume: true})` asks; 204 if there is none."""
        if request.method == "OPTIONS":
            return build_preflight_response(request.headers)
        with suppress(ConversationNotFound):
            conversation_id = await self._find_conversation(request, request.path_params["chat"])
            if (events := await self._find_events(request, conversation_id, StreamForm())) is not None:
                return SSEResponse(events, _build_headers(conversation_id, StreamForm()))
        return Response(status_code=204)

    async def _run(self, request: Request, asked: ChatRequest) -> SSEResponse:
        """Start a turn, or answer one; return its stream.

        Raises:
            DialError: The conversation cannot go on.
            HttpError: The request cannot be fulfilled.
        """
        if not asked.answers:
            form = StreamForm(asked.run, asked.chat, names=asked.tool_names)
            turn, refusal = None, None
            try:
                turn = await self._start(request, asked)
            except (ConversationBusy, ConfigError) as error:
                if asked.content or not asked.results:
                    raise
                refusal = error  # the same results came at the same time
            if turn is None:
                return await self._repeat(request, asked, form, refusal)
            events = self._stream(turn, form, keeps_running=asked.keeps_running)
            return SSEResponse(events, _build_headers(turn.conversation_id, form) | {"x-turn-id": turn.id})
        conversation_id = await self._find_conversation(request, asked.chat)
        await self._answer(request, asked.answers)
        resumes = max(parse_request_id(id_)[1] for id_ in asked.answers)
        form = StreamForm(asked.run, asked.chat, resumes, names=asked.tool_names)
        found = await self._find_events(request, conversation_id, form, keeps_running=asked.keeps_running)
        if found is None:
            message = "the turn that asked does not run any more: send a new message"
            raise HttpError(409, message, "turn_not_found")
        return SSEResponse(found, _build_headers(conversation_id, form))

    async def _find_events(
        self, request: Request, conversation_id: str, form: StreamForm, *, keeps_running: bool = True
    ) -> AsyncGenerator[str, None] | None:
        """Return the stream of a conversation's running turn, which another process may run; None if there is none.

        A turn whose answer has just ended it has a stream, too.
        """
        turn = select_owned(self._starter.manager, request).find_turn(conversation_id)
        if turn is not None and (form.resumes or not turn.has_ended):
            return self._stream(turn, form, keeps_running=keeps_running)
        return None if self._remote_turns is None else await self._remote_turns.find_latest(conversation_id, form)

    async def _answer(self, request: Request, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Deliver the answers; those to requests that have an answer already are without effect."""
        person = find_person(request)
        if APPROVE not in person.scopes:
            raise HttpError(403, "answers need a token with the scope approve", "insufficient_scope")
        for id_, body in answers.items():
            for deliver in (self._human_input.decide, self._human_input.answer):
                try:
                    await deliver(person, parse_request_id(id_)[0], body)
                except HttpError as error:
                    if error.status != 404:
                        raise
                else:
                    break

    async def _repeat(
        self, request: Request, asked: ChatRequest, form: StreamForm, refusal: ConversationBusy | ConfigError | None
    ) -> SSEResponse:
        """Return the stream of the turn that has begun with the results of a request: the front end sent them twice.

        Args:
            request: The request.
            asked: What it asks for.
            form: The form of its stream.
            refusal: Why no turn could begin with the results, though a call has waited for them; None if none has.

        Raises:
            ConversationBusy: Another turn of the conversation is running.
            HttpError: No call waits for the results, or the turn that began with them is not known any more.
        """
        conversation_id = await self._find_conversation(request, asked.chat)
        if await self._has_taken(request, asked, conversation_id, waits=refusal is not None):
            manager = select_owned(self._starter.manager, request)
            turn, events = manager.find_turn(conversation_id), None
            if turn is not None and any(message.role is Role.TOOL for message in turn.recorder.question):
                events = self._stream(turn, form, keeps_running=asked.keeps_running)
            elif self._remote_turns is not None:
                events = await self._remote_turns.find_latest(conversation_id, form)
                if events is None:  # it has ended, and the conversation has its id by now
                    *_, (_, details) = (await manager.view(conversation_id)).turns
                    events = await self._remote_turns.find_latest(conversation_id, form, str(details.get("turn")))
            if events is not None:
                return SSEResponse(events, _build_headers(conversation_id, form))
            problem = (
                "these results have been taken, and the turn that began with them has ended: read the conversation"
            )
            raise HttpError(409, problem, "results_taken", headers={"x-conversation-id": conversation_id})
        if isinstance(refusal, ConversationBusy):
            raise refusal
        problem = "no call of a tool of the front end waits for these results: send a new message"
        raise HttpError(409, problem, "call_not_found")

    async def _has_taken(self, request: Request, asked: ChatRequest, conversation_id: str, *, waits: bool) -> bool:
        """Return whether the last turn began with the results of a request; `waits` until they would be stored."""
        manager = select_owned(self._starter.manager, request)
        with anyio.move_on_after(_STORED_SECONDS):
            while not asked.select_results(await manager.find_client_calls(conversation_id, answered=True)):
                if not waits:
                    return False
                await anyio.sleep(_LOOK_SECONDS)
            return True
        return False

    async def _start(self, request: Request, asked: ChatRequest) -> TurnHandle | None:
        """Start a turn with the message of a request, or with its results; None if no call waits for the results."""
        message, notes = await self._starter.attach(request, asked.content)
        manager = select_owned(self._starter.manager, request)
        try:
            conversation_id = await self._find_conversation(request, asked.chat)
        except ConversationNotFound as error:
            if asked.earlier:
                problem = "this service does not have the earlier messages of this chat: begin a new chat"
                raise HttpError(409, problem, "unknown_chat") from error
            conversation_id = (await manager.create(conversation_id=error.conversation_id)).id
        if asked.contexts and asked.content:
            history = (await manager.get(conversation_id)).messages
            message = add_contexts(message, select_new(asked.contexts, history))
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
        elif asked.results:
            results = asked.select_results(await manager.find_client_calls(conversation_id))
            if results:
                turn_input = ClientResults(results, message if asked.content else None)
            elif not asked.content:
                return None
        return await self._starter.start(
            request, conversation_id, turn_input, notes=(*notes, *asked.notes), client_tools=asked.tools
        )

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

    async def _stream(self, turn: TurnHandle, form: StreamForm, *, keeps_running: bool) -> AsyncGenerator[str, None]:
        """Yield the stream of a turn of this process; stop the turn if its last front end closes the connection before.

        A front end has no other way to stop a turn. One that sends a request twice closes one of two connections.
        """
        is_over = keeps_running
        self._readers[turn.id] += not keeps_running
        try:
            async with aclosing(read_for_front_end(turn, form)) as parts:
                async for position, text in parts:
                    is_over = is_over or position is None
                    if text:
                        yield text
        finally:
            self._readers[turn.id] -= not keeps_running
            if not self._readers[turn.id]:
                del self._readers[turn.id]
                if not is_over:
                    turn.cancel()


def _change(position: int, message: Message, asked: ChatRequest) -> ConversationInput:
    return Regeneration(position) if asked.regenerates else EditedMessage(position, message)


def _build_headers(conversation_id: str, form: StreamForm) -> dict[str, str]:
    return {"x-conversation-id": conversation_id, **({} if form.run else ai_sdk_stream.HEADERS)}
