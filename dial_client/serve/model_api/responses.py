"""The route ``/v1/responses`` of OpenAI's Responses API."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.serve.http_messages import build_json_response, read_json
from dial_client.serve.model_api.answer_events import encode_failure, stream_answer
from dial_client.serve.model_api.answer_request import build_ignored_header
from dial_client.serve.model_api.answer_turns import AnswerTurns
from dial_client.serve.model_api.offered_models import ModelNames
from dial_client.serve.model_api.remote_images import ImageFetcher
from dial_client.serve.model_api.response_store import ResponseStore
from dial_client.serve.model_api.responses_events import ResponseEvents
from dial_client.serve.model_api.responses_request import list_input, parse_request
from dial_client.serve.security import find_person
from dial_client.serve.sse_response import HEAD_DELAY, SSEResponse


class ResponsesEndpoint:
    """The route of responses.

    Args:
        dial: The client, entered.
        turns: Runs the turns of requests.
        models: The models that requests may name.
        store: Keeps the responses that later requests refer to.
    """

    def __init__(self, dial: DialClient, turns: AnswerTurns, models: ModelNames, store: ResponseStore) -> None:
        self._dial = dial
        self._turns = turns
        self._models = models
        self._store = store
        self._images = ImageFetcher()

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/v1/responses", self._respond, methods=["POST"])]

    async def _respond(self, request: Request) -> Any:
        body = await read_json(request)
        owner = find_person(request).name
        given = await self._store.resolve(owner, list_input(body))
        await self._images.embed(given, "input")
        items = [*await self._store.list_items(owner, body.get("previous_response_id")), *given]
        model = self._models.find(body.get("model"))
        asked = parse_request(body, items, request.headers, model, self._dial.tools)
        headers = build_ignored_header(asked.answer)
        events = ResponseEvents(secrets.token_hex(16), asked)
        turn = await self._turns.start(asked.answer, owner)

        async def keep() -> None:
            if asked.echoed["store"]:
                await self._store.add(owner, events.response, given)

        if asked.answer.stream:
            stream = stream_answer(self._turns.read(turn, asked.answer), events, keep)
            failure = partial(encode_failure, events)
            return SSEResponse(stream, headers, turn.cancel, head_delay=HEAD_DELAY, encode_failure=failure)
        for part in await self._turns.wait(turn, asked.answer, request.receive):
            events.add(part)
        await keep()
        return build_json_response(events.response, headers=headers)
