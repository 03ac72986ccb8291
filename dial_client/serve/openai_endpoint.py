"""The routes under ``/v1``: a model with the servers' tools, for clients of OpenAI's chat completions.

A client sees one answer: this server executes the MCP servers' tool calls and sends the model as many requests as that
takes. A client's own tools are offered as well, and their calls are returned to the client. A client that disconnects
cancels its turn. No conversation is stored; the messages of a turn that returned calls are kept for a while. There is
no user to ask for approval: calls that need approval are denied.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from dial_client.client.dial_client import DialClient
from dial_client.messages.citations import to_annotations
from dial_client.messages.errors import OutputError
from dial_client.messages.events import Event, Finished, RoundStarted, TextDelta
from dial_client.messages.limits import StopReason
from dial_client.messages.message import ImagePart, Role, ToolCallRequest
from dial_client.messages.model import ModelSettings
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.serve.chat_completion_request import ChatCompletionRequest, parse_request
from dial_client.serve.cluster.handoffs import HandoffStore
from dial_client.serve.http_messages import HttpError, build_json_response, read_json, to_http_error
from dial_client.serve.sse_response import SSEResponse, call_on_disconnect
from dial_client.serve.turn_registry import ServedModel, TurnRegistry
from dial_client.sinks.sse_encoder import DONE, build_chunk, finish_reason, to_json
from dial_client.stores.mailbox import Mailbox
from dial_client.turns.turn_handle import TurnHandle


class ChatCompletionsEndpoint:
    """The routes under ``/v1``.

    Args:
        dial: The client, entered.
        turns: The running turns of this process.
        model: The model's current name in the API.
        mailbox: Shares the turns that returned calls with other processes; None without a database.
    """

    def __init__(self, dial: DialClient, turns: TurnRegistry, model: ServedModel, mailbox: Mailbox | None) -> None:
        self._dial = dial
        self._turns = turns
        self._model = model
        self._handoffs = HandoffStore(mailbox)
        self._created = int(time.time())

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/models", self._list_models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._get_model, methods=["GET"]),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
        ]

    async def _list_models(self, request: Request) -> Response:  # noqa: ARG002 - required by Starlette
        return build_json_response({"object": "list", "data": [self._model_to_dict()]})

    async def _get_model(self, request: Request) -> Response:
        if (name := request.path_params["model"]) != self._model.name:
            raise HttpError(404, f"there is no model {name!r} here", "model_not_found", param="model")
        return build_json_response(self._model_to_dict())

    def _model_to_dict(self) -> dict[str, Any]:
        return {"id": self._model.name, "object": "model", "created": self._created, "owned_by": "dial-client"}

    async def _complete(self, request: Request) -> Any:
        completion = parse_request(await read_json(request), self._model.name)
        headers = {"x-ignored-parameters": ", ".join(completion.ignored)[:500]} if completion.ignored else {}
        with self._turns.reserve():
            turn = self._dial.start(
                await self._handoffs.restore(completion.messages),
                stream=completion.stream,
                stream_events=completion.stream,
                client_tools=completion.tools,
                settings=ModelSettings(max_tokens=completion.max_tokens),
                output_type=completion.schema,
            )
            self._turns.add(turn)
        if completion.stream:
            return SSEResponse(self._stream(turn, completion), headers, turn.cancel)
        return build_json_response(await self._to_dict(await _wait_for_result(turn, request.receive)), headers=headers)

    async def _to_dict(self, turn: Turn) -> dict[str, Any]:
        _check_output(turn)
        calls = await self._handoffs.issue_calls(turn)
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None}
        message |= _describe_attachments(turn)
        if calls:
            message["tool_calls"] = [_call_to_dict(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(turn.stop_reason)}
        return self._build_head("chat.completion") | {"choices": [choice], "usage": _usage_to_dict(turn.usage)}

    async def _stream(self, turn: TurnHandle, completion: ChatCompletionRequest) -> AsyncGenerator[str, None]:
        """Yield the chunks. An exception before the first chunk is raised, so that it becomes an error response."""
        head = self._build_head("chat.completion.chunk")
        usage = {"usage": None} if completion.include_usage else {}
        opening: dict[str, Any] = {"role": "assistant", "content": ""}
        try:
            async with aclosing(self._read_deltas(turn, has_schema=completion.schema is not None)) as deltas:
                async for delta, ended in deltas:
                    stop_reason = None if ended is None else ended.stop_reason
                    yield _encode(build_chunk(head, opening | delta, stop_reason) | usage)
                    opening = {}
                    if ended is not None and completion.include_usage:
                        yield _encode(head | {"choices": [], "usage": _usage_to_dict(ended.usage)})
        except Exception as error:
            if opening:
                raise
            yield _encode({"error": to_http_error(error).error})
        yield DONE

    async def _read_deltas(
        self, turn: TurnHandle, *, has_schema: bool
    ) -> AsyncGenerator[tuple[dict[str, Any], Turn | None], None]:
        """Yield what each chunk adds to the message; the last one with the turn, which has ended.

        Args:
            turn: The turn.
            has_schema: True if the client requested JSON. Only the answer is sent then: with earlier text before it,
                the content would not be JSON.
        """
        length = 0  # characters of the text so far
        is_new_round = False
        async with aclosing(_read_events(turn)) as events:
            async for event in events:
                match event:
                    case RoundStarted():
                        is_new_round = True
                    case TextDelta(text) if not has_schema:
                        # A blank line separates the text of a model reply from the text before it.
                        separated = f"\n\n{text}" if is_new_round and length else text
                        is_new_round = False
                        length += len(separated)
                        yield {"content": separated}, None
                    case Finished(result):
                        _check_output(result)
                        if has_schema and result.text:
                            length = len(result.text)
                            yield {"content": result.text}, None
                        if attachments := _describe_attachments(result, length - len(result.text)):
                            yield attachments, None
                        for index, call in enumerate(await self._handoffs.issue_calls(result)):
                            yield {"tool_calls": [{"index": index, **_call_to_dict(call)}]}, None
                        yield {}, result

    def _build_head(self, kind: str) -> dict[str, Any]:
        id_ = f"chatcmpl-{secrets.token_hex(16)}"
        return {"id": id_, "object": kind, "created": int(time.time()), "model": self._model.name}


def _check_output(turn: Turn) -> None:
    """Raise an error if the answer does not match the schema that the client requested."""
    if turn.stop_reason is StopReason.INVALID_OUTPUT:
        message = f"the model's answer does not satisfy the schema of response_format: {turn.notes[-1]}"
        raise HttpError(502, message, "invalid_output", param="response_format")


async def _wait_for_result(turn: TurnHandle, receive: Receive) -> Turn:
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(call_on_disconnect, receive, turn.cancel)
            with suppress(Exception):  # raised below: the task group would wrap it
                await turn.result()
            group.cancel_scope.cancel()
    finally:
        await turn.stop()
    try:
        return await turn.result()
    except OutputError as error:
        return error.turn


async def _read_events(turn: TurnHandle) -> AsyncGenerator[Event, None]:
    """Yield the events of a turn. The last event is `Finished`, even if the answer does not match the schema."""
    try:
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event
    except OutputError as error:
        yield Finished(error.turn)


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
    annotations = to_annotations(turn.citations, len(turn.text), max(0, offset))
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
