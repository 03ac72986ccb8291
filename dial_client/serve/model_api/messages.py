"""The routes below ``/v1/messages`` of Anthropic's Messages API."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.serve.http_messages import build_json_response, read_json
from dial_client.serve.model_api.answer_events import encode_events, encode_failure, stream_answer
from dial_client.serve.model_api.answer_request import build_ignored_header
from dial_client.serve.model_api.answer_turns import AnswerTurns
from dial_client.serve.model_api.messages_events import MessageEvents
from dial_client.serve.model_api.messages_request import MessagesRequest, parse_request
from dial_client.serve.model_api.offered_models import ModelNames
from dial_client.serve.model_api.remote_images import ImageFetcher
from dial_client.serve.security import find_person
from dial_client.serve.sse_response import HEAD_DELAY, SSEResponse

# Anthropic's names for its models: programs send them without asking which models there are.
_FOREIGN = "claude-"


class MessagesEndpoint:
    """The routes of messages.

    Args:
        dial: The client, entered.
        turns: Runs the turns of requests.
        models: The models that requests may name.
    """

    def __init__(self, dial: DialClient, turns: AnswerTurns, models: ModelNames) -> None:
        self._dial = dial
        self._turns = turns
        self._models = models
        self._images = ImageFetcher()

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/messages", self._answer, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
        ]

    async def _answer(self, request: Request) -> Any:
        asked = await self._read(request)
        headers = build_ignored_header(asked.answer)
        events = MessageEvents(secrets.token_hex(16), asked)
        turn = await self._turns.start(asked.answer, find_person(request).name)
        if asked.answer.stream:
            stream = stream_answer(self._turns.read(turn, asked.answer), events)
            failure = partial(encode_failure, events)
            return SSEResponse(
                stream, headers, turn.cancel, keepalive=_PING, encode_failure=failure, head_delay=HEAD_DELAY
            )
        for part in await self._turns.wait(turn, asked.answer, request.receive):
            events.add(part)
        return build_json_response(events.message, headers=headers)

    async def _count_tokens(self, request: Request) -> Response:
        asked = (await self._read(request)).answer
        return build_json_response({"input_tokens": self._turns.estimate_tokens(asked)})

    async def _read(self, request: Request) -> MessagesRequest:
        body = await read_json(request)
        model = self._models.find(body.get("model"), stand_in=_FOREIGN)
        await self._images.embed(body.get("messages"))
        return parse_request(body, request.headers, model, self._dial.tools)


_PING = encode_events([{"type": "ping"}])
