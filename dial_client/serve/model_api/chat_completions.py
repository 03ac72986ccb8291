"""The routes under ``/v1`` of OpenAI's chat completions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.citations import to_annotations
from dial_client.messages.events import ToolCallFinished, ToolCallStarted
from dial_client.messages.message import ImagePart, Role, ToolCallRequest
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.serve.http_messages import build_json_response, read_json, to_http_error
from dial_client.serve.model_api.answer_request import build_ignored_header
from dial_client.serve.model_api.answer_turns import (
    AnswerEnd,
    AnswerPart,
    AnswerReasoning,
    AnswerText,
    AnswerTurns,
    describe_call,
)
from dial_client.serve.model_api.chat_completion_request import ChatCompletionRequest, parse_request
from dial_client.serve.model_api.offered_models import ModelNames
from dial_client.serve.model_api.remote_images import ImageFetcher
from dial_client.serve.security import find_person
from dial_client.serve.sse_response import HEAD_DELAY, SSEResponse
from dial_client.sinks.sse_encoder import DONE, build_chunk, finish_reason, to_json
from dial_client.turns.turn_handle import TurnHandle

# The header that tells clients of Anthropic's API, who expect models in another form at the same path.
_ANTHROPIC = "anthropic-version"
# Characters of the arguments and of the error of a call that are shown.
_MAX_SHOWN = 200


class ChatCompletionsEndpoint:
    """The routes of models and of chat completions.

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
        self._created = int(time.time())

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/models", self._list_models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._get_model, methods=["GET"]),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
        ]

    async def _list_models(self, request: Request) -> Response:
        data = [self._model_to_dict(name, request.headers) for name in self._models.list_names()]
        if _ANTHROPIC in request.headers:
            ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
            return build_json_response({"data": data, "has_more": False, **ends})
        return build_json_response({"object": "list", "data": data})

    async def _get_model(self, request: Request) -> Response:
        name = self._models.find(request.path_params["model"]).name
        return build_json_response(self._model_to_dict(name, request.headers))

    def _model_to_dict(self, name: str, headers: Mapping[str, str]) -> dict[str, Any]:
        if _ANTHROPIC in headers:
            created = datetime.fromtimestamp(self._created, UTC).isoformat().replace("+00:00", "Z")
            return {"type": "model", "id": name, "display_name": name, "created_at": created, "lifecycle": "active"}
        return {"id": name, "object": "model", "created": self._created, "owned_by": "dial-client"}

    async def _complete(self, request: Request) -> Any:
        body = await read_json(request)
        model = self._models.find(body.get("model"))
        await self._images.embed(body.get("messages"))
        completion = parse_request(body, request.headers, model, self._dial.tools)
        answer = completion.answer
        headers = build_ignored_header(answer)
        turn = await self._turns.start(answer, find_person(request).name)
        if answer.stream:
            stream = self._stream(turn, completion)
            return SSEResponse(stream, headers, turn.cancel, head_delay=HEAD_DELAY, encode_failure=_encode_failure)
        parts = await self._turns.wait(turn, answer, request.receive)
        return build_json_response(_to_dict(parts, answer.model.name), headers=headers)

    async def _stream(self, turn: TurnHandle, completion: ChatCompletionRequest) -> AsyncGenerator[str, None]:
        """Yield the chunks."""
        head = _build_head("chat.completion.chunk", completion.answer.model.name)
        usage = {"usage": None} if completion.include_usage else {}
        opening: dict[str, Any] = {"role": "assistant", "content": ""}
        async with aclosing(self._read_deltas(turn, completion)) as deltas:
            async for delta, ended in deltas:
                stop_reason = None if ended is None else ended.stop_reason
                yield _encode(build_chunk(head, opening | delta, stop_reason) | usage)
                opening = {}
                if ended is not None and completion.include_usage:
                    yield _encode(head | {"choices": [], "usage": _usage_to_dict(ended.usage)})
        yield DONE

    async def _read_deltas(
        self, turn: TurnHandle, completion: ChatCompletionRequest
    ) -> AsyncGenerator[tuple[dict[str, Any], Turn | None], None]:
        """Yield what each chunk adds to the message; the last one with the turn, which has ended."""
        async with aclosing(self._turns.read(turn, completion.answer)) as parts:
            async for part in parts:
                match part:
                    case AnswerText(text, separator):
                        yield {"content": separator + text}, None
                    case AnswerReasoning(text):
                        yield {"reasoning_content": text}, None
                    case ToolCallStarted() | ToolCallFinished():
                        if line := describe_call(part):
                            yield {"reasoning_content": line}, None
                    case AnswerEnd(result):
                        if attachments := _describe_attachments(result, part.offset):
                            yield attachments, None
                        for index, call in enumerate(part.calls):
                            yield {"tool_calls": [{"index": index, **_call_to_dict(call)}]}, None
                        yield {}, result


def _to_dict(parts: Sequence[AnswerPart], model: str) -> dict[str, Any]:
    [end] = [part for part in parts if isinstance(part, AnswerEnd)]
    turn = end.turn
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None}
    message |= _describe_attachments(turn)
    if reasoning := "".join(part.text for part in parts if isinstance(part, AnswerReasoning)):
        message["reasoning_content"] = reasoning
    if end.calls:
        message["tool_calls"] = [_call_to_dict(call) for call in end.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(turn.stop_reason)}
    return _build_head("chat.completion", model) | {"choices": [choice], "usage": _usage_to_dict(turn.usage)}


def _build_head(kind: str, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(16)}", "object": kind, "created": int(time.time()), "model": model}


def _call_to_dict(call: ToolCallRequest) -> dict[str, Any]:
    arguments = json.dumps(dict(call.arguments)) if call.unreadable is None else call.unreadable
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _describe_attachments(turn: Turn, offset: int = 0) -> dict[str, Any]:
    """Return the message fields for the sources and images of an answer; empty fields are omitted.

    Args:
        turn: The turn with the answer.
        offset: Characters of the completion before the answer.
    """
    content = turn.message.content
    parts = content if not isinstance(content, str) and turn.message.role is Role.ASSISTANT else ()
    images = [
        {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}
        for part in parts
        if isinstance(part, ImagePart)
    ]
    annotations = to_annotations(turn.citations, len(turn.text), offset)
    return {name: value for name, value in (("annotations", annotations), ("images", images)) if value}


def _usage_to_dict(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _encode(chunk: Any) -> str:
    return f"data: {to_json(chunk)}\n\n"


def _encode_failure(error: Exception) -> str:
    return _encode({"error": to_http_error(error).error}) + DONE
