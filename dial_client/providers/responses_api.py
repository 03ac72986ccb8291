"""OpenAI's Responses API, used without state at the endpoint.

https://platform.openai.com/docs/api-reference/responses. Nothing is stored there: every request has the
whole conversation, with the encrypted reasoning of the model as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dial_client.messages import FilePart, ImagePart, Message, Part, TextPart, ToolCallRequest, ToolSpec, Usage, text_of
from dial_client.model import (
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    ToolChoice,
)
from dial_client.providers.endpoint_profile import OPENAI, EndpointProfile
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.http.provider_errors import StreamedError, require_object
from dial_client.providers.response_items import to_input_item
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call, replace_surrogates, to_json_text
from dial_client.providers.usage import parse_usage
from dial_client.providers.wire_history import AssistantStep, Result, UserStep, normalize

if TYPE_CHECKING:
    from openai.types.responses import (
        EasyInputMessageParam,
        FunctionToolParam,
        ResponseCreateParams,
        ResponseFunctionToolCallParam,
        ResponseInputContentParam,
    )
    from openai.types.responses.response_create_params import ResponseCreateParamsBase
    from openai.types.responses.response_input_item_param import FunctionCallOutput

_NO_PARAMETERS = {"type": "object", "properties": {}}
"""The parameters of a tool without any, which this API demands."""
_ID = r"[a-zA-Z0-9_-]{1,64}"


class ResponsesProvider(HttpProvider):
    """A provider for endpoints with the Responses API."""

    wire = "responses"
    search_tool = {"type": "tool_search"}  # noqa: RUF012 - fixed

    def _get_path(self) -> str:
        return "/responses"

    def _new_parser(self) -> ResponsesStreamParser:
        return ResponsesStreamParser()

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        # Unless "strict" is False, the API may make optional arguments required, which servers need not take.
        strict = self._adaptation.profile.strict
        parameters = dict(tool.input_schema or _NO_PARAMETERS)
        function: FunctionToolParam
        function = {"type": "function", "name": tool.name, "parameters": parameters, "strict": strict}
        if tool.deferred:
            function["defer_loading"] = True
        if tool.description:
            function["description"] = tool.description
        return {**function}

    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        profile = self._adaptation.profile
        items = to_wire(request.messages, self._name, profile, notes)
        params: ResponseCreateParamsBase = {"model": self._model, "input": items, "store": False}
        params["include"] = ["reasoning.encrypted_content"]
        if instructions := replace_surrogates(request.instruction_text):
            params["instructions"] = instructions
        if has_tools and request.tool_choice is ToolChoice.NONE:
            params["tool_choice"] = "none"
        if has_tools and profile.parallel != "omit":
            params["parallel_tool_calls"] = profile.parallel == "send_true"
        if limit := self._get_max_tokens(request):
            params["max_output_tokens"] = limit
        body: ResponseCreateParams
        body = {**params, "stream": True} if request.stream else {**params, "stream": False}
        return {**body, **self._get_sampling_fields()}


def to_wire(
    messages: Sequence[Message], provider_name: str, profile: EndpointProfile = OPENAI, notes: list[str] | None = None
) -> list[Any]:
    """Return the conversation as the items of ``input``, valid for any conversation.

    Args:
        messages: any messages but system messages.
        provider_name: the provider whose echoes are sent.
        profile: decides what the endpoint takes.
        notes: gets what the model is not shown.
    """
    steps = normalize(messages, provider_name, _ID, profile, notes)
    items: list[Any] = []
    for step in steps:
        if isinstance(step, UserStep):
            message: EasyInputMessageParam = {"role": "user", "content": _to_content(step.parts)}
            items.append(message)
            continue
        items.extend(_read_echo(step) or _build_items(step))
        items.extend(_build_outputs(step))
    return items


def _read_echo(step: AssistantStep) -> list[dict[str, Any]]:
    """Return the items that came, with valid ids and arguments; nothing if their calls are not those of the step."""
    received = step.echo if isinstance(step.echo, list) else []
    items = [item for item in map(to_input_item, received) if item is not None]
    if [item.get("call_id") for item in items if item.get("type") == "function_call"] != list(step.original_ids):
        return []
    calls = iter(step.calls)
    valid = []
    for item in items:
        if item.get("type") == "function_call":
            call = next(calls)
            arguments = _to_text(item.get("arguments"))
            if not arguments.strip() or parse_call(call.id, call.name, arguments).unreadable is not None:
                arguments = to_json_text(call.arguments)
            valid.append(item | {"call_id": call.id, "name": call.name, "arguments": arguments})
        else:
            valid.append(item)
    return valid


def _build_items(step: AssistantStep) -> list[EasyInputMessageParam | ResponseFunctionToolCallParam]:
    items: list[EasyInputMessageParam | ResponseFunctionToolCallParam] = []
    if step.text:
        items.append({"role": "assistant", "content": step.text})
    for call in step.calls:
        arguments = to_json_text(call.arguments)
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
    return items


def _build_outputs(step: AssistantStep) -> list[FunctionCallOutput]:
    return [
        {"type": "function_call_output", "call_id": call.id, "output": _to_output(result)}
        for call, result in zip(step.calls, step.results, strict=True)
    ]


def _to_content(parts: tuple[Part, ...]) -> str | list[ResponseInputContentParam]:
    if all(isinstance(part, TextPart) for part in parts):
        return text_of(parts)
    return [_to_part(part) for part in parts]


def _to_output(result: Result) -> str | list[Any]:
    return [_to_part(part) for part in result.to_parts()] if result.media else result.text()


def _to_part(part: Part) -> ResponseInputContentParam:
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case ImagePart(data, mime_type):
            return {"type": "input_image", "image_url": f"data:{mime_type};base64,{data}", "detail": "auto"}
        case FilePart(data, mime_type, name):
            return {"type": "input_file", "filename": name, "file_data": f"data:{mime_type};base64,{data}"}


class ResponsesStreamParser:
    """The `StreamParser` of the Responses API."""

    def __init__(self) -> None:
        self.ended = False
        self.paused = False
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] | None = None
        self._call_begun = False
        self._text_of_item: Any = None
        self._streamed_text = False
        self._streamed_reasoning = False

    @property
    def has_calls(self) -> bool:
        """True if at least one tool call has begun."""
        return self._call_begun or any(item.get("type") == "function_call" for item in self._complete_items())

    def feed(self, value: Any) -> Sequence[Delta]:
        """Parse an event, or a whole ``response``."""
        event = require_object(value)
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._add_text(event)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._streamed_reasoning = True
                return (ReasoningChunk(text),) if (text := _to_text(event.get("delta"))) else ()
            case "response.reasoning_summary_part.added" if self._streamed_reasoning:
                return (ReasoningChunk("\n\n"),)
            case "response.output_item.added" | "response.output_item.done" as kind:
                self._add_item(event, is_whole=kind.endswith("done"))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                return self._end_response(event.get("response"))
            case None if event.get("object") == "response" or "output" in event:
                return self._end_response(event)
        return ()

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Return the tool calls of a complete reply, and the `Completion`."""
        response = self._response or {}
        items = self._complete_items()
        finish, notes = _find_finish_reason(response, items), list(notes)
        usage = parse_usage(response.get("usage")) if self._response else Usage()
        call_items = [item for item in items if item.get("type") == "function_call"]
        if finish is not FinishReason.STOP:
            if self.has_calls:
                notes.append("the reply is not whole: its tool calls are not run")
            return [Completion(finish, usage, notes=tuple(notes))]
        calls = make_ids_unique([_parse_item_call(item) for item in call_items])
        for item, call in zip(call_items, calls, strict=True):
            item["call_id"] = call.id
        finish = FinishReason.TOOL_CALLS if calls else finish
        return [*(CallChunk(call) for call in calls), Completion(finish, usage, items or None, tuple(notes))]

    def _add_item(self, event: dict[str, Any], *, is_whole: bool) -> None:
        item, at = event.get("item"), event.get("output_index")
        if not isinstance(item, dict):
            return
        self._call_begun = self._call_begun or item.get("type") == "function_call"
        if is_whole:
            self._items[at if isinstance(at, int) else len(self._items)] = item

    def _add_text(self, event: dict[str, Any]) -> list[Delta]:
        """Return more text; a further message begins a new paragraph."""
        text, item = _to_text(event.get("delta")), event.get("output_index")
        if not text:
            return []
        is_new_paragraph = self._streamed_text and item != self._text_of_item
        self._streamed_text, self._text_of_item = True, item
        return [TextChunk(f"\n\n{text}" if is_new_paragraph else text)]

    def _end_response(self, response: Any) -> list[Delta]:
        """Take the whole response, and return the deltas that were not streamed."""
        self._response = response if isinstance(response, dict) else {}
        self.ended = True
        if self._response.get("status") == "failed":
            raise StreamedError(self._response)
        deltas: list[Delta] = []
        items = self._complete_items()
        reasoning = [text for item in items if item.get("type") == "reasoning" for text in _list_reasoning(item)]
        if reasoning and not self._streamed_reasoning:
            deltas.append(ReasoningChunk("\n\n".join(reasoning)))
        text = [text for item in items if item.get("type") == "message" if (text := _join_text(item))]
        if text and not self._streamed_text:
            deltas.append(TextChunk("\n\n".join(text)))
        return deltas

    def _complete_items(self) -> list[dict[str, Any]]:
        """Return the complete items: of the events, which have encrypted reasoning, or else of the response."""
        if self._items:
            return [self._items[at] for at in sorted(self._items)]
        output = (self._response or {}).get("output")
        return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _find_finish_reason(response: dict[str, Any], items: Sequence[dict[str, Any]]) -> FinishReason:
    status = response.get("status")
    if status == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        return FinishReason.REFUSED if reason == "content_filter" else FinishReason.LENGTH
    if status not in ("completed", None) or not response:
        return FinishReason.CUT
    if any(item.get("status") == "incomplete" for item in items):
        return FinishReason.CUT
    refused = (part.get("type") == "refusal" for item in items for part in _list_parts(item))
    return FinishReason.REFUSED if any(refused) else FinishReason.STOP


def _parse_item_call(item: dict[str, Any]) -> ToolCallRequest:
    return parse_call(
        _to_text(item.get("call_id")) or _to_text(item.get("id")), _to_text(item.get("name")), item.get("arguments")
    )


def _list_parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _join_text(item: dict[str, Any]) -> str:
    return "".join(_to_text(part.get("text")) or _to_text(part.get("refusal")) for part in _list_parts(item))


def _list_reasoning(item: dict[str, Any]) -> list[str]:
    summary = item.get("summary")
    parts = [part for part in summary if isinstance(part, dict)] if isinstance(summary, list) else []
    return [text for part in (parts or _list_parts(item)) if (text := _to_text(part.get("text")))]


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
