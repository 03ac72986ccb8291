"""OpenAI's Responses API, used without stored state.

https://platform.openai.com/docs/api-reference/responses. The endpoint stores nothing: every request contains the whole
conversation, with the model's encrypted reasoning unchanged. Items are sent back with the fields that the API's schema
allows (`ITEM_FIELDS`): some endpoints add their own fields (Snowflake: ``item_id``, ``output_index``) and types of
items, and an endpoint that validates requests refuses both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dial_client.messages.citations import Citation, ResponseCitations
from dial_client.messages.message import FilePart, ImagePart, Message, Part, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    CommentaryChunk,
    Completion,
    Delta,
    EndpointCallChunk,
    FinishReason,
    MediaChunk,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from dial_client.messages.token_usage import Usage, parse_usage
from dial_client.providers import server_tools
from dial_client.providers.api_history import AssistantStep, UserStep, normalize, to_content
from dial_client.providers.http.http_provider import HttpProvider, build_output_schema, build_sampling_fields
from dial_client.providers.http.provider_errors import StreamedError, require_object
from dial_client.providers.http.response_stream import StreamParser
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call, to_json_text
from dial_client.runtime.json_fields import find_text, to_list, to_object, to_text
from dial_client.runtime.kept_prefix import KeptPrefix
from dial_client.runtime.text import replace_surrogates
from dial_client.settings.endpoint_profile import OPENAI, EndpointProfile

if TYPE_CHECKING:
    from openai.types import responses
    from openai.types.responses.response_create_params import ResponseCreateParamsBase
    from openai.types.responses.response_input_item_param import FunctionCallOutput

_CALL = "id call_id status"
# The types of items that a request may contain, and their fields, as in `ResponseInputItemParam` of `openai` 3.54.
ITEM_FIELDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(["type", *names.split()])
    for kind, names in {
        "additional_tools": "id role tools",
        "apply_patch_call": f"{_CALL} caller operation",
        "apply_patch_call_output": f"{_CALL} caller output",
        "code_interpreter_call": "id status code container_id outputs",
        "compaction": "id encrypted_content",
        "computer_call": f"{_CALL} action actions pending_safety_checks",
        "computer_call_output": f"{_CALL} acknowledged_safety_checks output",
        "custom_tool_call": "id call_id async caller input name namespace",
        "custom_tool_call_output": "id call_id caller output",
        "file_search_call": "id status queries results",
        "function_call": f"{_CALL} arguments async caller name namespace",
        "function_call_output": f"{_CALL} caller name namespace output",
        "image_generation_call": "id status action background error output_format quality result revised_prompt size"
        " svg_usage",
        "local_shell_call": f"{_CALL} action",
        "local_shell_call_output": "id status output",
        "mcp_approval_request": "id arguments name server_label",
        "mcp_approval_response": "id approval_request_id approve reason",
        "mcp_call": "id status approval_request_id arguments error name output server_label",
        "mcp_list_tools": "id error server_label tools",
        "message": "id status content phase role",
        "program": "id call_id code fingerprint",
        "program_output": f"{_CALL} result",
        "reasoning": "id status content encrypted_content summary",
        "shell_call": f"{_CALL} action caller environment",
        "shell_call_output": f"{_CALL} caller max_output_length output",
        "tool_search_call": f"{_CALL} arguments execution",
        "tool_search_output": f"{_CALL} execution tools",
        "web_search_call": "id status action",
    }.items()
}


# The parameters of a tool that has none. The API requires the field.
_NO_PARAMETERS = {"type": "object", "properties": {}}
_ID = r"[a-zA-Z0-9_-]{1,64}"


class ResponsesProvider(HttpProvider):
    """A provider for endpoints with the Responses API."""

    api = "responses"
    search_tool = {"type": "tool_search"}  # noqa: RUF012 - fixed
    absent_settings = frozenset({"seed", "stop"})

    def _get_path(self) -> str:
        return "/responses"

    def _create_parser(self) -> ResponsesStreamParser:
        return ResponsesStreamParser()

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        # Unless "strict" is False, the API may make optional arguments required, which MCP servers need not accept.
        strict = self._adaptation.profile.strict
        parameters = dict(tool.input_schema or _NO_PARAMETERS)
        function: responses.FunctionToolParam
        function = {"type": "function", "name": tool.name, "parameters": parameters, "strict": strict}
        if tool.deferred:
            function["defer_loading"] = True
        if tool.description:
            function["description"] = tool.description
        return {**function}

    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        profile = self._adaptation.profile
        settings = self._choose_settings(request, notes, has_tools=has_tools)
        items = to_messages(request.messages, self._name, profile, notes, request.converted)
        params: ResponseCreateParamsBase = {"model": self._model, "input": items, "store": False}
        params["include"] = ["reasoning.encrypted_content", *(self._server_tools.included if has_tools else ())]
        if instructions := replace_surrogates(request.instruction_text):
            params["instructions"] = instructions
        if settings.tool_choice is not None:
            params["tool_choice"] = _encode_choice(settings.tool_choice)
        if has_tools and (settings.parallel_calls is False or profile.parallel != "omit"):
            params["parallel_tool_calls"] = settings.parallel_calls is not False and profile.parallel == "send_true"
        if request.output_format is not None:
            schema: Any = {"type": "json_schema", **build_output_schema(request.output_format, profile)}
            params["text"] = {"format": schema}
        if settings.thinking is not None:
            params["reasoning"] = {"effort": settings.thinking}
        if settings.max_tokens:
            params["max_output_tokens"] = settings.max_tokens
        return {**params, "stream": request.stream, **build_sampling_fields(settings)}


def _encode_choice(choice: str) -> Any:
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def to_messages(
    messages: Sequence[Message],
    provider_name: str,
    profile: EndpointProfile = OPENAI,
    notes: list[str] | None = None,
    kept: dict[str, KeptPrefix[Any]] | None = None,
) -> list[Any]:
    """Return the items of ``input``, which are valid whatever conversation they are built from.

    Args:
        messages: The conversation, without system messages.
        provider_name: The name of the provider whose echoes are sent.
        profile: The flags that say which content the endpoint accepts.
        notes: Receives notes on content that the model is not shown.
        kept: `ModelRequest.converted`.
    """
    kept_steps = None if kept is None else kept.setdefault("steps", KeptPrefix())
    steps = normalize(messages, provider_name, _ID, profile, notes, kept=kept_steps)
    items: list[Any] = []
    for step in steps:
        if isinstance(step, UserStep):
            message: responses.EasyInputMessageParam = {"role": "user", "content": to_content(step.parts, _to_part)}
            items.append(message)
            continue
        items.extend(_read_echo(step) or _build_items(step))
        for call, result in zip(step.calls, step.results, strict=True):
            output: Any = list(map(_to_part, result.to_parts())) if result.media else result.to_text()
            item: FunctionCallOutput = {"type": "function_call_output", "call_id": call.id, "output": output}
            items.append(item)
    return items


def _read_echo(step: AssistantStep) -> list[dict[str, Any]]:
    """Return the echo's items, with valid ids and arguments; an empty list if the calls are not those of the step."""
    items = [item for item in map(to_input_item, to_list(step.echo)) if item is not None]
    if [item.get("call_id") for item in items if item.get("type") == "function_call"] != list(step.original_ids):
        return []
    calls = iter(step.calls)
    valid = []
    for item in items:
        if item.get("type") == "function_call":
            call = next(calls)
            arguments = to_text(item.get("arguments"))
            if not arguments.strip() or parse_call(call.id, call.name, arguments).unreadable is not None:
                arguments = to_json_text(call.arguments)
            valid.append(item | {"call_id": call.id, "name": call.name, "arguments": arguments})
        else:
            valid.append(item)
    return valid


def _build_items(step: AssistantStep) -> list[responses.ResponseInputItemParam]:
    items: list[responses.ResponseInputItemParam] = [{"role": "assistant", "content": step.text}] if step.text else []
    for call in step.calls:
        arguments = to_json_text(call.arguments)
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
    return items


def _to_part(part: Part) -> responses.ResponseInputContentParam:
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case ImagePart(data, mime_type):
            return {"type": "input_image", "image_url": f"data:{mime_type};base64,{data}", "detail": "auto"}
        case FilePart(data, mime_type, name):
            return {"type": "input_file", "filename": name, "file_data": f"data:{mime_type};base64,{data}"}


def to_input_item(item: Any) -> dict[str, Any] | None:
    """Return a response's item with only the fields that a request may contain; None if its type may not be sent."""
    kind = item.get("type") if isinstance(item, dict) else None
    fields = ITEM_FIELDS.get(kind) if isinstance(kind, str) else None
    return None if fields is None else {name: value for name, value in item.items() if name in fields}


# The ``phase`` of a message that is not part of the answer.
_COMMENTARY = "commentary"


class ResponsesStreamParser(StreamParser):
    """The `StreamParser` of the Responses API."""

    def __init__(self) -> None:
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] | None = None
        # The tool names of the calls that have begun, by output index.
        self._begun_calls: dict[int, str] = {}
        self._text = _ReplyText()
        self._streamed_reasoning = False
        # The output indices of the messages that are commentary.
        self._commentary: set[int] = set()
        # The output indices of the commentary messages whose text has been returned.
        self._shown_commentary: set[int] = set()
        # The calls that the endpoint runs itself: by ``call_id`` if the item has one (shell commands), else by id.
        self._endpoint_calls: dict[str, ToolCallRequest] = {}
        self._ended_calls: set[str] = set()
        self._annotations: list[dict[str, Any]] = []
        self._notes: dict[str, None] = {}

    @property
    def has_calls(self) -> bool:
        """True if at least one tool call has begun."""
        items = self._complete_items().values()
        return bool(self._begun_calls) or any(item.get("type") == "function_call" for item in items)

    def feed(self, value: Any) -> Sequence[Delta]:
        """Parse a stream event, or a ``response`` object."""
        event = require_object(value)
        match event.get("type"):
            case (
                "response.output_text.delta"
                | "response.refusal.delta"
                | "response.audio.transcript.delta"
                | "response.output_audio_transcript.delta"
            ):
                return self._add_text(event)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._streamed_reasoning = True
                return (ReasoningChunk(text),) if (text := to_text(event.get("delta"))) else ()
            case "response.reasoning_summary_part.added" if self._streamed_reasoning:
                return (ReasoningChunk("\n\n"),)
            case "response.function_call_arguments.delta" if self.streams_arguments:
                item_index = _to_index(event.get("output_index"))
                return (ArgumentsChunk(item_index, self._begun_calls.get(item_index, ""), to_text(event.get("delta"))),)
            case "response.output_item.added" | "response.output_item.done" as kind:
                return self._add_item(event, is_whole=kind.endswith("done"))
            case "response.output_text.annotation.added":
                self._annotations.append(event)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                return self._end_response(event.get("response"))
            case None if event.get("object") == "response" or "output" in event:
                return self._end_response(event)
        return ()

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Return the tool calls of a complete reply, and the `Completion`."""
        response = self._response or {}
        items = list(self._complete_items().values())
        finish = _find_finish_reason(response, items)
        notes = (*notes, *self._notes, *self._describe_end(finish))
        usage = parse_usage(response.get("usage")) if self._response else Usage()
        usage = replace(usage, server_tool_calls=len(self._ended_calls))
        completion = Completion(finish, usage, notes=notes, citations=self._find_citations())
        if finish is not FinishReason.STOP:
            return [completion]
        call_items = [item for item in items if item.get("type") == "function_call"]
        calls = make_ids_unique([_parse_item_call(item) for item in call_items])
        for item, call in zip(call_items, calls, strict=True):
            item["call_id"] = call.id
        finish = FinishReason.TOOL_CALLS if calls else finish
        return [*map(CallChunk, calls), replace(completion, finish=finish, echo=items or None)]

    def _find_citations(self) -> tuple[Citation, ...]:
        """Return the citations of the events and of the items, without duplicates."""
        citations = ResponseCitations()
        for event in self._annotations:
            item_index, index = _to_index(event.get("output_index")), _to_index(event.get("content_index"))
            if item_index not in self._commentary:
                citations.add(event.get("annotation"), self._text.begins.get((item_index, index)))
        for item_index, item in self._complete_items().items():
            for index, part in enumerate(_list_parts(item)) if item.get("phase") != _COMMENTARY else ():
                for annotation in to_list(part.get("annotations")):
                    citations.add(annotation, self._text.begins.get((item_index, index)))
        citations.add_list((self._response or {}).get("citations"))
        return citations.finish()

    def _add_item(self, event: dict[str, Any], *, is_whole: bool) -> list[Delta]:
        item, item_index = event.get("item"), _to_index(event.get("output_index"))
        if not isinstance(item, dict):
            return []
        if item.get("type") == "function_call":
            self._begun_calls[item_index] = to_text(item.get("name"))
        if item.get("phase") == _COMMENTARY:
            self._commentary.add(item_index)
        deltas: list[Delta] = []
        if is_whole:
            item_index = item_index if item_index >= 0 else len(self._items)
            self._items[item_index] = item
            deltas.extend(self._end_commentary(item_index, item))
        return [*deltas, *self._show_item(item, is_whole=is_whole)]

    def _end_commentary(self, item_index: int, item: dict[str, Any]) -> list[Delta]:
        """Return the end of a commentary message, with its text if the text was not streamed."""
        if item.get("phase") != _COMMENTARY or item_index in self._text.items:
            return []
        text = "" if item_index in self._shown_commentary else "".join(map(_read_part_text, _list_parts(item)))
        self._shown_commentary.add(item_index)
        return [CommentaryChunk(text, is_end=True)]

    def _show_item(self, item: dict[str, Any], *, is_whole: bool) -> Iterator[Delta]:
        """Yield the calls and results of the endpoint's own tools in an item, each call and each result once."""
        if note := server_tools.describe_client_item(item):
            self._notes[note] = None
        shell_result = server_tools.parse_shell_output(item, self._endpoint_calls) if is_whole else None
        if shell_result is not None:
            self._ended_calls.add(shell_result.tool_call_id)
            yield EndpointCallChunk(self._endpoint_calls[to_text(item.get("call_id"))], shell_result)
        has_name = is_whole or bool(item.get("id"))
        parsed = server_tools.parse_item(item) if has_name else None
        if parsed is None or parsed[0].id in self._ended_calls:
            return
        call, result = parsed
        self._endpoint_calls[to_text(item.get("call_id")) or call.id] = call
        if result is not None and is_whole:
            self._ended_calls.add(call.id)
        yield EndpointCallChunk(call, result if is_whole else None)
        if is_whole and item.get("type") == "image_generation_call" and (data := to_text(item.get("result"))):
            yield MediaChunk(ImagePart(data, f"image/{to_text(item.get('output_format')) or 'png'}"))

    def _add_text(self, event: dict[str, Any]) -> list[Delta]:
        text, item_index = event.get("delta"), _to_index(event.get("output_index"))
        if not text or not isinstance(text, str):
            return []
        if item_index in self._commentary:
            self._shown_commentary.add(item_index)
            return [CommentaryChunk(text)]
        return [TextChunk(self._text.add(text, item_index, _to_index(event.get("content_index"))))]

    def _end_response(self, response: Any) -> list[Delta]:
        """Store the complete response, and return the deltas that were not streamed."""
        self._response = to_object(response)
        self.ended = True
        if self._response.get("status") == "failed":
            raise StreamedError(self._response)
        deltas: list[Delta] = []
        has_events = bool(self._items)
        items = self._complete_items()
        thoughts = (item for item in items.values() if item.get("type") == "reasoning")
        reasoning = [text for item in thoughts for text in _list_reasoning(item)]
        if reasoning and not self._streamed_reasoning:
            deltas.append(ReasoningChunk("\n\n".join(reasoning)))
        has_text = self._text.length > 0
        for item_index, item in items.items():
            if not has_events:
                deltas.extend(self._show_item(item, is_whole=True))
            if item.get("type") == "message":
                deltas.extend(self._show_message(item_index, item, has_text=has_text))
        return deltas

    def _show_message(self, item_index: int, item: dict[str, Any], *, has_text: bool) -> Iterator[Delta]:
        """Yield the deltas of a message, without those that were streamed."""
        if item.get("phase") == _COMMENTARY:
            yield from self._end_commentary(item_index, item) if item_index not in self._shown_commentary else ()
            return
        for index, part in enumerate(_list_parts(item)):
            if not has_text and (text := _read_part_text(part)):
                yield TextChunk(self._text.add(text, item_index, index))

    def _complete_items(self) -> dict[int, dict[str, Any]]:
        """Return the complete items by output index, from the events if possible: those contain encrypted reasoning."""
        if self._items:
            return {item_index: self._items[item_index] for item_index in sorted(self._items)}
        output = to_list((self._response or {}).get("output"))
        return {item_index: item for item_index, item in enumerate(output) if isinstance(item, dict)}


class _ReplyText:
    """The text of the reply. Each further message begins a new paragraph."""

    def __init__(self) -> None:
        self.length = 0
        self.items: set[int] = set()
        """The output indices of the messages whose text has been added."""
        self.begins: dict[tuple[int, int], int] = {}
        """The position of each content part in the text, in characters, by output index and content index."""
        self._place = (-2, -2)

    def add(self, text: str, item: int, part: int) -> str:
        """Add text of a content part, and return the text to append to the reply."""
        if (item, part) == self._place:
            self.length += len(text)
            return text
        shown = f"\n\n{text}" if self.length and item != self._place[0] else text
        self._place = (item, part)
        self.items.add(item)
        self.begins.setdefault((item, part), self.length + len(shown) - len(text))
        self.length += len(shown)
        return shown


def _find_finish_reason(response: dict[str, Any], items: Sequence[dict[str, Any]]) -> FinishReason:
    status = response.get("status")
    if status == "incomplete":
        reason = find_text(response.get("incomplete_details"), "reason")
        return FinishReason.REFUSED if reason == "content_filter" else FinishReason.LENGTH
    if status not in ("completed", None) or not response:
        return FinishReason.CUT
    if any(item.get("status") == "incomplete" for item in items):
        return FinishReason.CUT
    refused = (part.get("type") == "refusal" for item in items for part in _list_parts(item))
    return FinishReason.REFUSED if any(refused) else FinishReason.STOP


def _parse_item_call(item: dict[str, Any]) -> ToolCallRequest:
    return parse_call(find_text(item, "call_id", "id"), to_text(item.get("name")), item.get("arguments"))


def _list_parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in to_list(item.get("content")) if isinstance(part, dict)]


def _read_part_text(part: dict[str, Any]) -> str:
    return find_text(part, "text", "refusal", "transcript")


def _list_reasoning(item: dict[str, Any]) -> list[str]:
    parts = [part for part in to_list(item.get("summary")) if isinstance(part, dict)]
    return [text for part in (parts or _list_parts(item)) if (text := to_text(part.get("text")))]


def _to_index(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else -1
