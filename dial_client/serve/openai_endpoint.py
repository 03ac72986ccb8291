"""``/v1``: a model with the servers' tools already behind it, for any client of OpenAI's chat completions.

A client sees one answer. The servers' calls are made here, and so are as many requests to the model as it takes; tools
the client brings along are offered beside them and handed back when the model calls them. A client that goes away
cancels its turn. No conversation is kept; what a turn did that handed calls back is, for a while. There is nobody to
ask for permission: what is not allowed is denied.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from dial_client.client import DialClient
from dial_client.events import Finished, RoundStarted, TextDelta
from dial_client.limits import StopReason
from dial_client.messages import ToolCallRequest, Usage
from dial_client.serve.chat_completion_request import ChatCompletionRequest, read
from dial_client.serve.cluster.handoffs import HandoffStore
from dial_client.serve.http_responses import HttpError, answered, refusal_of
from dial_client.serve.request_bodies import json_of
from dial_client.serve.sse_response import SSEResponse, gone
from dial_client.serve.turn_registry import TurnRegistry
from dial_client.sinks.completion_chunks import build_chunk, finish_reason
from dial_client.sinks.sse_encoder import DONE, to_json
from dial_client.stores.mailbox import Mailbox
from dial_client.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle


class ChatCompletionsEndpoint:
    """Answers under ``/v1``.

    Args:
        dial: answers; open.
        turns: those that are under way.
        model: the name by which the model is known here.
        board: where other processes find what a turn did that handed calls back; None where there is none.
    """

    def __init__(self, dial: DialClient, turns: TurnRegistry, model: str, board: Mailbox | None) -> None:
        self._dial = dial
        self._turns = turns
        self._model = model
        self._threads = HandoffStore(board)
        self._since = int(time.time())

    def routes(self) -> list[Route]:
        """Give the addresses."""
        return [
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._one_model, methods=["GET"]),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
        ]

    async def _models(self, request: Request) -> Response:  # noqa: ARG002 - as Starlette has it
        return answered({"object": "list", "data": [self._card()]})

    async def _one_model(self, request: Request) -> Response:
        if (name := request.path_params["model"]) != self._model:
            raise HttpError(404, f"there is no model {name!r} here", "model_not_found", param="model")
        return answered(self._card())

    def _card(self) -> dict[str, Any]:
        return {"id": self._model, "object": "model", "created": self._since, "owned_by": "dial-client"}

    async def _complete(self, request: Request) -> Any:
        asked = read(await json_of(request), self._model)
        headers = {"x-ignored-parameters": ", ".join(asked.ignored)[:500]} if asked.ignored else {}
        with self._turns.place():
            turn = self._dial.start(
                await self._threads.taken_up(asked.messages),
                stream=asked.stream,
                stream_events=asked.stream,
                client_tools=asked.tools,
                max_tokens=asked.max_tokens,
            )
            self._turns.keep(turn)
        if asked.stream:
            return SSEResponse(self._streamed(turn, asked), headers, turn.cancel)
        return answered(await self._whole(await _result(turn, request.receive)), headers=headers)

    async def _whole(self, turn: Turn) -> dict[str, Any]:
        calls = await self._threads.hand_out(turn)
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None, "refusal": None}
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(turn.stop_reason)}
        return self._head("chat.completion") | {"choices": [choice], "usage": _usage(turn.usage)}

    async def _streamed(self, turn: TurnHandle, asked: ChatCompletionRequest) -> AsyncGenerator[str, None]:
        """Give the chunks. What is raised before the first of them is raised here, and has a status of its own."""
        stream = _Chunks(self._head("chat.completion.chunk"), include_usage=asked.include_usage)
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    match event:
                        case RoundStarted():
                            stream.begin_round()
                        case TextDelta(text):
                            yield stream.text(text)
                        case Finished(whole):
                            for line in stream.end(whole, await self._threads.hand_out(whole)):
                                yield line
        except Exception as error:
            if not stream.has_begun:
                raise
            yield _line({"error": refusal_of(error).error})
        yield DONE

    def _head(self, kind: str) -> dict[str, Any]:
        made = {"object": kind, "created": int(time.time()), "model": self._model}
        return {"id": f"chatcmpl-{uuid.uuid4().hex}", **made}


class _Chunks:
    """The chunks of one stream."""

    def __init__(self, head: dict[str, Any], *, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage
        self._has_text = False
        self._gap = ""
        self.has_begun = False

    def begin_round(self) -> None:
        """Set what the model says next apart from what it said before."""
        self._gap = "\n\n" if self._has_text else ""

    def text(self, text: str) -> str:
        gap, self._gap, self._has_text = self._gap, "", True
        return self._chunk({"content": f"{gap}{text}"})

    def end(self, turn: Turn, calls: tuple[ToolCallRequest, ...]) -> list[str]:
        said = [self._chunk({"tool_calls": [{"index": at, **_call(call)}]}) for at, call in enumerate(calls)]
        said.append(self._chunk({}, turn.stop_reason))
        if self._include_usage:
            said.append(_line(self._head | {"choices": [], "usage": _usage(turn.usage)}))
        return said

    def _chunk(self, delta: dict[str, Any], stop_reason: StopReason | None = None) -> str:
        if not self.has_begun:
            delta = {"role": "assistant", "content": ""} | delta
        self.has_begun = True
        usage = {"usage": None} if self._include_usage else {}
        return _line(build_chunk(self._head, delta, stop_reason) | usage)


async def _result(turn: TurnHandle, receive: Receive) -> Turn:
    async def cancel_when_gone() -> None:
        await gone(receive)
        turn.cancel()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_when_gone)
            with suppress(Exception):  # raised below, outside of the group
                await turn.result()
            group.cancel_scope.cancel()
    finally:
        await turn.stopped()
    return await turn.result()


def _call(call: ToolCallRequest) -> dict[str, Any]:
    arguments = json.dumps(dict(call.arguments)) if call.unreadable is None else call.unreadable
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _line(said: Any) -> str:
    return f"data: {to_json(said)}\n\n"
