"""OpenAI's Responses API, used without stored state.

https://platform.openai.com/docs/api-reference/responses. The endpoint stores nothing: every request contains the whole
conversation, with the model's encrypted reasoning unchanged. Items are sent back with the fields that the API's schema
allows (`ITEM_FIELDS`): some endpoints add their own fields (Snowflake: ``item_id``, ``output_index``) and types of
items, and an endpoint that validates requests refuses both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dial_client.messages.message import FilePart, ImagePart, Message, Part, TextPart, ToolSpec, extract_text
from dial_client.messages.model import ModelRequest, OutputFormat
from dial_client.providers.api_history import AssistantStep, Result, UserStep, normalize
from dial_client.providers.http.http_provider import HttpProvider, build_sampling_fields, get_output_dialect
from dial_client.providers.responses_stream import ResponsesStreamParser
from dial_client.providers.tool_call_codec import parse_call, to_json_text
from dial_client.runtime.json_fields import to_text
from dial_client.runtime.text import replace_surrogates
from dial_client.schema.provider_schema import to_output_schema
from dial_client.settings.endpoint_profile import OPENAI, EndpointProfile

if TYPE_CHECKING:
    from openai.types.responses import (
        EasyInputMessageParam,
        FunctionToolParam,
        ResponseCreateParams,
        ResponseFormatTextJSONSchemaConfigParam,
        ResponseFunctionToolCallParam,
        ResponseInputContentParam,
    )
    from openai.types.responses.response_create_params import ResponseCreateParamsBase, ToolChoice
    from openai.types.responses.response_input_item_param import FunctionCallOutput

_CALL = "id call_id status"
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
"""The types of items that a request may contain, and their fields, as in `ResponseInputItemParam` of `openai` 3.54."""


_NO_PARAMETERS = {"type": "object", "properties": {}}
"""The parameters of a tool that has none. The API requires the field."""
_ID = r"[a-zA-Z0-9_-]{1,64}"


class ResponsesProvider(HttpProvider):
    """A provider for endpoints with the Responses API."""

    api = "responses"
    search_tool = {"type": "tool_search"}  # noqa: RUF012 - fixed
    absent_settings = frozenset({"seed"})

    def _get_path(self) -> str:
        return "/responses"

    def _create_parser(self) -> ResponsesStreamParser:
        return ResponsesStreamParser()

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        # Unless "strict" is False, the API may make optional arguments required, which MCP servers need not accept.
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
        settings = self._choose_settings(request, notes, has_tools=has_tools)
        items = to_messages(request.messages, self._name, profile, notes)
        params: ResponseCreateParamsBase = {"model": self._model, "input": items, "store": False}
        params["include"] = ["reasoning.encrypted_content", *(self._server_tools.included if has_tools else ())]
        if instructions := replace_surrogates(request.instruction_text):
            params["instructions"] = instructions
        if settings.tool_choice is not None:
            params["tool_choice"] = _encode_choice(settings.tool_choice)
        if has_tools and profile.parallel != "omit":
            params["parallel_tool_calls"] = profile.parallel == "send_true"
        if request.output_format is not None:
            params["text"] = {"format": _build_format(request.output_format, profile)}
        if settings.thinking is not None:
            params["reasoning"] = {"effort": settings.thinking}
        if settings.max_tokens:
            params["max_output_tokens"] = settings.max_tokens
        body: ResponseCreateParams
        body = {**params, "stream": True} if request.stream else {**params, "stream": False}
        return {**body, **build_sampling_fields(settings)}


def _encode_choice(choice: str) -> ToolChoice:
    match choice:
        case "none":
            return "none"
        case "required":
            return "required"
    return {"type": "function", "name": choice}


def _build_format(form: OutputFormat, profile: EndpointProfile) -> ResponseFormatTextJSONSchemaConfigParam:
    schema, is_strict = to_output_schema(form.schema, get_output_dialect(profile))
    format_: ResponseFormatTextJSONSchemaConfigParam
    format_ = {"type": "json_schema", "name": form.name, "schema": schema, "strict": is_strict}
    if form.description:
        format_["description"] = form.description
    return format_


def to_messages(
    messages: Sequence[Message], provider_name: str, profile: EndpointProfile = OPENAI, notes: list[str] | None = None
) -> list[Any]:
    """Return the items of ``input``, which are valid whatever conversation they are built from.

    Args:
        messages: The conversation, without system messages.
        provider_name: The name of the provider whose echoes are sent.
        profile: The flags that say which content the endpoint accepts.
        notes: Receives notes on content that the model is not shown.
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
    """Return the echo's items, with valid ids and arguments; an empty list if the calls are not those of the step."""
    received = step.echo if isinstance(step.echo, list) else []
    items = [item for item in map(to_input_item, received) if item is not None]
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
        return extract_text(parts)
    return [_to_part(part) for part in parts]


def _to_output(result: Result) -> str | list[Any]:
    return [_to_part(part) for part in result.to_parts()] if result.media else result.to_text()


def _to_part(part: Part) -> ResponseInputContentParam:
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
