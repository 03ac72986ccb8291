"""The routes below ``/v1/messages`` of Anthropic's Messages API, and an answer as its blocks and events.

A call of one of the client's tools is a ``tool_use`` block. The model's reasoning is in ``thinking`` blocks, if the
client has enabled thinking. Their signature is empty: only Anthropic's endpoint can sign thinking. Calls of the
servers' tools are lines of the thinking; clients that have enabled Anthropic's MCP connector get ``mcp_tool_use`` and
``mcp_tool_result`` blocks. Other clients need not know these, and may read the text of the first block, whatever it is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.events import ToolCallFinished, ToolCallStarted
from dial_client.messages.limits import StopReason
from dial_client.messages.message import describe_content
from dial_client.messages.token_usage import Usage
from dial_client.serve.http_messages import HttpError, build_json_response, read_json
from dial_client.serve.model_api.answer_events import ApiEvent, encode_events, encode_failure, stream_answer
from dial_client.serve.model_api.answer_request import build_ignored_header
from dial_client.serve.model_api.answer_turns import (
    AnswerEnd,
    AnswerPart,
    AnswerReasoning,
    AnswerText,
    AnswerTurns,
    describe_call,
)
from dial_client.serve.model_api.messages_request import MessagesRequest, parse_request
from dial_client.serve.model_api.offered_models import ModelNames
from dial_client.serve.model_api.remote_images import ImageFetcher
from dial_client.serve.model_api.request_history import HOST
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


_STOP_REASONS: Mapping[StopReason, str] = {
    StopReason.CLIENT_TOOL_CALLS: "tool_use",
    StopReason.TRUNCATED: "max_tokens",
    StopReason.CANCELLED: "max_tokens",  # by the end of the service: the API has no reason of its own for that
    StopReason.REFUSED: "refusal",
}


class MessageEvents:
    """Builds one message, and the events that stream it.

    Args:
        id_: The end of the ids of the message and of the shown calls, unique among all messages.
        request: The request.
    """

    def __init__(self, id_: str, request: MessagesRequest) -> None:
        self._id = id_
        self._shows_thinking = request.shows_thinking
        self._shows_calls = request.shows_calls
        self.message: dict[str, Any] = {
            "id": f"msg_{id_}",
            "type": "message",
            "role": "assistant",
            "model": request.answer.model.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage_to_dict(Usage()),
        }
        """The message so far."""
        self._has_started = False
        self._is_open = False
        # The ids of the blocks of calls that run, by the ids of the calls.
        self._running: dict[str, str] = {}

    def add(self, part: AnswerPart) -> list[ApiEvent]:
        """Add a part of the answer, and return its events; with the first part, also that of the message's start."""
        start: list[ApiEvent] = []
        if not self._has_started:
            self._has_started = True
            start.append({"type": "message_start", "message": self.message | {"content": []}})
        return [*start, *self._add_part(part)]

    def _add_part(self, part: AnswerPart) -> list[ApiEvent]:
        match part:
            case AnswerText(text):
                return self._add_text("text", text, is_new=bool(part.separator))
            case AnswerReasoning(text):
                return self._add_thinking(text)
            case ToolCallStarted() if self._shows_calls:
                return self._start_server_call(part)
            case ToolCallFinished() if self._shows_calls:
                return self._finish_server_call(part)
            case ToolCallStarted() | ToolCallFinished():
                return self._add_thinking(describe_call(part))
            case AnswerEnd():
                return self._end(part)

    def fail(self, error: HttpError) -> list[ApiEvent]:
        """Return the event of a message that failed after its start."""
        return [error.to_messages_dict()]

    @property
    def _content(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = self.message["content"]
        return blocks

    def _begin_block(self, **block: Any) -> ApiEvent:
        self._content.append(block)
        return {"type": "content_block_start", "index": len(self._content) - 1, "content_block": dict(block)}

    def _close(self) -> list[ApiEvent]:
        """Return the event that ends the block that grows."""
        was_open, self._is_open = self._is_open, False
        return [{"type": "content_block_stop", "index": len(self._content) - 1}] if was_open else []

    def _add_block(self, delta: ApiEvent | None = None, **block: Any) -> list[ApiEvent]:
        """Return the events of a block that is complete at once; with one delta if it has one."""
        closing = self._close()
        self._is_open = True
        begin = self._begin_block(**block)
        deltas = [] if delta is None else [delta | {"index": len(self._content) - 1}]
        return [*closing, begin, *deltas, *self._close()]

    def _add_text(self, kind: str, text: str, *, is_new: bool = False, **fields: Any) -> list[ApiEvent]:
        events = []
        if not self._is_open or self._content[-1]["type"] != kind or is_new:
            events += [*self._close(), self._begin_block(type=kind, **{kind: ""}, **fields)]
            self._is_open = True
        self._content[-1][kind] += text
        delta = {"type": f"{kind}_delta", kind: text}
        return [*events, {"type": "content_block_delta", "index": len(self._content) - 1, "delta": delta}]

    def _add_thinking(self, text: str) -> list[ApiEvent]:
        return self._add_text("thinking", text, signature="") if self._shows_thinking and text else []

    def _start_server_call(self, started: ToolCallStarted) -> list[ApiEvent]:
        id_ = f"mcptoolu_{self._id}_{len(self._content)}"
        self._running[started.call.id] = id_
        # The whole input is in the first event: some clients accept deltas of their own calls' input only.
        return self._add_block(
            type="mcp_tool_use",
            id=id_,
            name=started.tool or started.call.name,
            server_name=started.server or HOST,
            input=dict(started.call.arguments),
        )

    def _finish_server_call(self, finished: ToolCallFinished) -> list[ApiEvent]:
        result = finished.result
        id_ = self._running.pop(result.tool_call_id, None)
        if id_ is None:
            return []
        content = [{"type": "text", "text": describe_content(result.content)}]
        return self._add_block(type="mcp_tool_result", tool_use_id=id_, is_error=not result.success, content=content)

    def _end(self, end: AnswerEnd) -> list[ApiEvent]:
        events = self._close()
        for call in end.calls:
            arguments = dict(call.arguments)
            events += self._add_call(call.id, call.name, arguments)
        usage = _usage_to_dict(end.turn.usage)
        stop = {"stop_reason": _STOP_REASONS.get(end.turn.stop_reason, "end_turn"), "stop_sequence": None}
        self.message |= {**stop, "usage": usage}
        return [*events, {"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]

    def _add_call(self, id_: str, name: str, arguments: dict[str, Any]) -> list[ApiEvent]:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        events = self._add_block(
            {"type": "content_block_delta", "delta": delta}, type="tool_use", id=id_, name=name, input={}
        )
        self._content[-1]["input"] = arguments
        return events


def _usage_to_dict(usage: Usage) -> dict[str, Any]:
    """Return the tokens of a message. The API counts the tokens of its cache apart from the others of the request."""
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
