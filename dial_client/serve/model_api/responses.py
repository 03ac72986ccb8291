"""The route ``/v1/responses`` of OpenAI's Responses API, and an answer as its items and events.

A call of a server's tool is an ``mcp_call`` item, a call of one of the client's tools a ``function_call`` or
``custom_tool_call`` item, and the model's reasoning a ``reasoning`` item with a summary. Each reply of the model has a
message item of its own. Reasoning has no ``encrypted_content``: clients may send it back or not.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.citations import to_annotations
from dial_client.messages.events import ToolCallFinished, ToolCallStarted
from dial_client.messages.limits import StopReason
from dial_client.messages.message import ImagePart, Role, ToolCallRequest, describe_content
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.serve.http_messages import HttpError, build_json_response, read_json
from dial_client.serve.model_api.answer_events import ApiEvent, encode_failure, stream_answer
from dial_client.serve.model_api.answer_request import build_ignored_header
from dial_client.serve.model_api.answer_turns import AnswerEnd, AnswerPart, AnswerReasoning, AnswerText, AnswerTurns
from dial_client.serve.model_api.offered_models import ModelNames
from dial_client.serve.model_api.remote_images import ImageFetcher
from dial_client.serve.model_api.request_history import HOST
from dial_client.serve.model_api.response_store import ResponseStore
from dial_client.serve.model_api.responses_request import (
    CUSTOM_INPUT,
    ClientTool,
    ResponsesRequest,
    list_input,
    parse_request,
)
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


_INCOMPLETE: Mapping[StopReason, str] = {
    StopReason.TRUNCATED: "max_output_tokens",
    StopReason.CANCELLED: "max_output_tokens",  # by the end of the service: the API has no reason of its own for that
    StopReason.REFUSED: "content_filter",
}
_ERROR_CODES = {429: "rate_limit_exceeded", 400: "invalid_prompt", 413: "invalid_prompt", 422: "invalid_prompt"}


class ResponseEvents:
    """Builds one response, and the events that stream it.

    Args:
        id_: The end of the ids of the response and its items, unique among all responses.
        request: The request.
    """

    def __init__(self, id_: str, request: ResponsesRequest) -> None:
        self._id = id_
        self._tools = request.tools
        self.response: dict[str, Any] = {
            "id": f"resp_{id_}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": request.answer.model.name,
            "output": [],
            "parallel_tool_calls": True,
            "usage": None,
            **request.echoed,
        }
        """The response so far."""
        self._sequence = 0
        # The item that grows, by its place in the output: a message or a reasoning.
        self._open: int | None = None
        # The places of the calls of servers' tools that run, by the ids of the calls.
        self._running: dict[str, int] = {}

    def add(self, part: AnswerPart) -> list[ApiEvent]:
        """Add a part of the answer, and return its events; with the first part, also those of the response's start."""
        return [*self._start(), *self._add_part(part)]

    def _start(self) -> list[ApiEvent]:
        if self._sequence:
            return []
        response = self.response | {"output": []}
        return [self._number(f"response.{state}", response=response) for state in ("created", "in_progress")]

    def _add_part(self, part: AnswerPart) -> list[ApiEvent]:
        match part:
            case AnswerText():
                return self._add_text(part)
            case AnswerReasoning(text):
                return self._add_reasoning(text)
            case ToolCallStarted():
                return self._start_server_call(part)
            case ToolCallFinished():
                return self._finish_server_call(part)
            case AnswerEnd():
                return self._end(part)

    def fail(self, error: HttpError) -> list[ApiEvent]:
        """Return the events of a response that failed after its start."""
        code = _ERROR_CODES.get(error.status, "server_error")
        if error.error["code"] == "context_length_exceeded":
            code = "context_length_exceeded"
        problem = {"code": code, "message": error.error["message"]}
        start = self._start()
        self.response |= {"status": "failed", "error": problem}
        # The first event makes OpenAI's SDKs raise an error; other clients read the second one.
        return [
            *start,
            self._number("error", **problem, param=error.error["param"], error=error.error),
            self._number("response.failed", response=dict(self.response)),
        ]

    @property
    def _output(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.response["output"]
        return items

    def _number(self, kind: str, **fields: Any) -> ApiEvent:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence - 1, **fields}

    def _begin_item(self, prefix: str, kind: str, **fields: Any) -> tuple[int, list[ApiEvent]]:
        """Return the place of a new item in the output, and the event of its start."""
        place = len(self._output)
        item = {"id": f"{prefix}_{self._id}_{place}", "type": kind, "status": "in_progress", **fields}
        self._output.append(item)
        return place, [self._number("response.output_item.added", output_index=place, item=dict(item))]

    def _end_item(self, place: int, **fields: Any) -> ApiEvent:
        self._output[place] |= fields
        return self._number("response.output_item.done", output_index=place, item=dict(self._output[place]))

    def _at(self, place: int, **fields: Any) -> dict[str, Any]:
        return {"item_id": self._output[place]["id"], "output_index": place, **fields}

    def _add_text(self, part: AnswerText) -> list[ApiEvent]:
        events: list[ApiEvent] = []
        if self._open is None or self._output[self._open]["type"] != "message" or bool(part.separator):
            events += self._close()
            self._open, added = self._begin_item("msg", "message", role="assistant", content=[])
            empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            events += [
                *added,
                self._number("response.content_part.added", **self._at(self._open, content_index=0), part=empty),
            ]
            self._output[self._open]["content"] = [dict(empty)]
        self._output[self._open]["content"][0]["text"] += part.text
        delta = self._at(self._open, content_index=0, delta=part.text, logprobs=[])
        return [*events, self._number("response.output_text.delta", **delta)]

    def _add_reasoning(self, text: str) -> list[ApiEvent]:
        events: list[ApiEvent] = []
        if self._open is None or self._output[self._open]["type"] != "reasoning":
            events += self._close()
            self._open, added = self._begin_item("rs", "reasoning", summary=[])
            empty = {"type": "summary_text", "text": ""}
            part = self._at(self._open, summary_index=0, part=empty)
            events += [*added, self._number("response.reasoning_summary_part.added", **part)]
            self._output[self._open]["summary"] = [dict(empty)]
        self._output[self._open]["summary"][0]["text"] += text
        delta = self._at(self._open, summary_index=0, delta=text)
        return [*events, self._number("response.reasoning_summary_text.delta", **delta)]

    def _close(self, status: str = "completed") -> list[ApiEvent]:
        """Return the events that end the item that grows."""
        place, self._open = self._open, None
        if place is None:
            return []
        item = self._output[place]
        if item["type"] == "reasoning":
            kind, part, index = "response.reasoning_summary", item["summary"][0], {"summary_index": 0}
            text, end = f"{kind}_text.done", f"{kind}_part.done"
        else:
            part, index = item["content"][0], {"content_index": 0}
            text, end = "response.output_text.done", "response.content_part.done"
        extra: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
        return [
            self._number(text, **self._at(place, **index, text=part["text"], **extra)),
            self._number(end, **self._at(place, **index, part=dict(part))),
            self._end_item(place, status=status),
        ]

    def _start_server_call(self, started: ToolCallStarted) -> list[ApiEvent]:
        call = started.call
        arguments = _write_arguments(call)
        server, tool = started.server or HOST, started.tool or call.name
        closing = self._close()
        place, added = self._begin_item(
            "mcp", "mcp_call", server_label=server, name=tool, arguments="", output=None, error=None
        )
        self._running[call.id] = place
        self._output[place]["arguments"] = arguments
        return [
            *closing,
            *added,
            self._number("response.mcp_call.in_progress", **self._at(place)),
            self._number("response.mcp_call_arguments.delta", **self._at(place, delta=arguments)),
            self._number("response.mcp_call_arguments.done", **self._at(place, arguments=arguments)),
        ]

    def _finish_server_call(self, finished: ToolCallFinished) -> list[ApiEvent]:
        result = finished.result
        place = self._running.pop(result.tool_call_id, None)
        if place is None:
            return []
        text = describe_content(result.content)
        end: dict[str, Any] = {"status": "completed", "output": text}
        if not result.success:
            content = [{"type": "text", "text": text}]
            end = {"status": "failed", "error": {"type": "mcp_tool_execution_error", "content": content}}
        kind = "response.mcp_call.completed" if result.success else "response.mcp_call.failed"
        return [self._number(kind, **self._at(place)), self._end_item(place, **end)]

    def _end(self, end: AnswerEnd) -> list[ApiEvent]:
        turn = end.turn
        self._annotate(turn)
        reason = _INCOMPLETE.get(turn.stop_reason)
        state = "completed" if reason is None else "incomplete"
        events = self._close(state)
        for image in _list_images(turn):
            place, added = self._begin_item("ig", "image_generation_call", result=None)
            events += [*added, self._end_item(place, status="completed", result=image.data)]
        for call in end.calls:
            events += self._add_client_call(call)
        self.response |= {
            "status": state,
            "incomplete_details": None if reason is None else {"reason": reason},
            "usage": _usage_to_dict(turn.usage),
        }
        if reason is None:
            self.response["completed_at"] = int(time.time())
        return [*events, self._number(f"response.{state}", response=dict(self.response))]

    def _annotate(self, turn: Turn) -> None:
        """Add the sources of the answer to the message that grows, which is the answer."""
        if self._open is None or self._output[self._open]["type"] != "message":
            return
        part = self._output[self._open]["content"][0]
        for annotation in to_annotations(turn.citations, len(turn.text)):
            kind = annotation["type"]
            details = {name: value for name, value in annotation[kind].items() if name != "content"}
            part["annotations"].append({"type": kind, **details})

    def _add_client_call(self, call: ToolCallRequest) -> list[ApiEvent]:
        tool = self._tools.get(call.name, ClientTool(call.name))
        names: dict[str, Any] = {"call_id": call.id, "name": tool.name}
        if tool.namespace:
            names["namespace"] = tool.namespace
        if tool.is_custom:
            prefix, kind, field, text = "ctc", "custom_tool_call", "input", _read_custom_input(call)
            event = "response.custom_tool_call_input"
        else:
            prefix, kind, field, text = "fc", "function_call", "arguments", _write_arguments(call)
            event = "response.function_call_arguments"
        place, added = self._begin_item(prefix, kind, **names, **{field: ""})
        return [
            *added,
            self._number(f"{event}.delta", **self._at(place, delta=text)),
            self._number(f"{event}.done", **self._at(place, **{field: text})),
            self._end_item(place, status="completed", **{field: text}),
        ]


def _write_arguments(call: ToolCallRequest) -> str:
    return json.dumps(dict(call.arguments)) if call.unreadable is None else call.unreadable


def _read_custom_input(call: ToolCallRequest) -> str:
    """Return the text of a call of a custom tool."""
    given = call.arguments.get(CUSTOM_INPUT)
    return given if isinstance(given, str) else _write_arguments(call)


def _list_images(turn: Turn) -> list[ImagePart]:
    content = turn.message.content
    parts = () if isinstance(content, str) or turn.message.role is not Role.ASSISTANT else content
    return [part for part in parts if isinstance(part, ImagePart)]


def _usage_to_dict(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
