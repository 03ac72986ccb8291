"""The Chat Completions API: OpenAI's older API, which most other endpoints implement too.

Requests and responses: https://platform.openai.com/docs/api-reference/chat. `chat_stream` lists the deviations of
other endpoints.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dial_client.messages.message import (
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCallRequest,
    ToolSpec,
    extract_text,
)
from dial_client.messages.model import Delta, ModelRequest, TextChunk
from dial_client.providers.api_history import AssistantStep, Result, UserStep, normalize
from dial_client.providers.chat_stream import ChatStreamParser
from dial_client.providers.http.http_provider import HttpProvider, build_sampling_fields, get_output_dialect
from dial_client.providers.http.response_stream import RawBody
from dial_client.providers.json_to_lines import JsonToLines
from dial_client.providers.tool_call_codec import to_json_text
from dial_client.runtime.text import replace_surrogates
from dial_client.schema.provider_schema import to_output_schema
from dial_client.settings.endpoint_profile import CHAT, EndpointProfile

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionContentPartParam,
        ChatCompletionContentPartTextParam,
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageFunctionToolCallParam,
        ChatCompletionSystemMessageParam,
        ChatCompletionToolChoiceOptionParam,
        ChatCompletionToolMessageParam,
        ChatCompletionUserMessageParam,
        CompletionCreateParams,
    )
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase
    from openai.types.shared_params import FunctionDefinition, ResponseFormatJSONSchema
    from openai.types.shared_params.response_format_json_schema import JSONSchema

NO_ANSWER = "(no answer)"

_ANY_ID = r"[!-~]{1,40}"
_SIGNED_FIELDS = frozenset({"extra_content", "provider_specific_fields"})
"""The fields of a call that must be sent back: thought signatures of Gemini, and of LiteLLM as a proxy for Gemini."""
_SHORT_ID = r"[a-zA-Z0-9]{9}"


class ChatProvider(HttpProvider):
    """A provider for endpoints with the Chat Completions API."""

    api = "chat"

    def _get_path(self) -> str:
        return "/chat/completions"

    def _create_parser(self) -> ChatStreamParser:
        return ChatStreamParser(self._adaptation.profile)

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        function: FunctionDefinition = {"name": tool.name}
        if tool.input_schema:
            function["parameters"] = dict(tool.input_schema)
        if tool.description:
            function["description"] = tool.description
        if self._adaptation.profile.strict:
            function["strict"] = True
        encoded: ChatCompletionFunctionToolParam = {"type": "function", "function": function}
        return {**encoded}

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""
        deltas = super().generate_recorded(request, bodies)
        is_json = request.schema is not None and self._adaptation.profile.constrain == "response_format"
        return _convert_json_to_lines(deltas) if is_json else deltas

    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        profile = self._adaptation.profile
        settings = self._choose_settings(request, notes, has_tools=has_tools)
        messages = to_messages(request.messages, self._name, profile, notes)
        if text := replace_surrogates(request.instruction_text):
            system: ChatCompletionSystemMessageParam = {"role": "system", "content": text}
            messages.insert(0, system)
        params: CompletionCreateParamsBase = {"model": self._model, "messages": messages}
        # Without this option, most endpoints report no usage in a stream.
        if request.stream and profile.stream_usage:
            params["stream_options"] = {"include_usage": True}
        if settings.tool_choice is not None:
            params["tool_choice"] = _encode_choice(settings.tool_choice)
        # Endpoints that do not know the field refuse it, so it is sent only on request.
        if has_tools and profile.parallel != "omit":
            params["parallel_tool_calls"] = profile.parallel == "send_true"
        if request.stop:
            params["stop"] = list(request.stop)
        if settings.thinking is not None:
            params["reasoning_effort"] = settings.thinking
        self._add_limit(params, settings.max_tokens)
        body: CompletionCreateParams
        body = {**params, "stream": True} if request.stream else {**params, "stream": False}
        server_tools = self._server_tools.fields if _may_use_server_tools(request) else {}
        return {
            **body,
            **_build_constraint(request, profile),
            **build_output_format(request, profile),
            **server_tools,
            **build_sampling_fields(settings),
        }

    def _add_limit(self, params: CompletionCreateParamsBase, limit: int | None) -> None:
        match self._adaptation.profile.max_tokens_field:
            case "max_tokens" if limit:
                params["max_tokens"] = limit
            case "max_completion_tokens" if limit:
                params["max_completion_tokens"] = limit


def _encode_choice(choice: str) -> ChatCompletionToolChoiceOptionParam:
    match choice:
        case "none":
            return "none"
        case "required":
            return "required"
    return {"type": "function", "function": {"name": choice}}


def _may_use_server_tools(request: ModelRequest) -> bool:
    return request.endpoint_tools and request.allows_calls


def _build_constraint(request: ModelRequest, profile: EndpointProfile) -> dict[str, Any]:
    """Return the body's field that constrains the reply; an empty object if the reply is not constrained."""
    match profile.constrain:
        case "grammar" if request.grammar:
            return {"grammar": request.grammar}
        case "structured_outputs" if request.grammar:
            return {"structured_outputs": {"grammar": request.grammar}}
        case "response_format" if request.schema is not None:
            schema: ResponseFormatJSONSchema = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": dict(request.schema), "strict": True},
            }
            return {"response_format": schema}
    return {}


def build_output_format(request: ModelRequest, profile: EndpointProfile) -> dict[str, Any]:
    """Return the ``response_format`` field for a structured answer; an empty object for an answer in text."""
    form = request.output_format
    if form is None:
        return {}
    schema, is_strict = to_output_schema(form.schema, get_output_dialect(profile))
    definition: JSONSchema = {"name": form.name, "schema": schema, "strict": is_strict}
    if form.description:
        definition["description"] = form.description
    response_format: ResponseFormatJSONSchema = {"type": "json_schema", "json_schema": definition}
    return {"response_format": response_format}


async def _convert_json_to_lines(deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a reply whose text is a JSON object, with the object converted to labelled lines."""
    lines = JsonToLines()
    async with aclosing(deltas):
        async for delta in deltas:
            if not isinstance(delta, TextChunk):
                yield delta
            elif text := lines.feed(delta.text):
                yield TextChunk(text)


def to_messages(
    messages: Sequence[Message], provider_name: str, profile: EndpointProfile = CHAT, notes: list[str] | None = None
) -> list[Any]:
    """Return the ``messages`` of a request, which are valid whatever conversation they are built from.

    Args:
        messages: The conversation, without system messages.
        provider_name: The name of the provider whose echoes are sent.
        profile: The flags that say which content the endpoint accepts.
        notes: Receives notes on content that the model is not shown.
    """
    ids = _SHORT_ID if profile.short_ids else _ANY_ID
    steps = normalize(messages, provider_name, ids, profile, notes, in_results=profile.user_after_tool)
    sent: list[Any] = []
    for step in steps:
        if isinstance(step, UserStep):
            _add_user(sent, _to_content(step.parts), profile)
            continue
        _add_assistant(sent, _to_assistant_message(step, profile))
        sent.extend(_to_tool_messages(step, profile))
        if media := _to_media_parts(step):
            _add_user(sent, media, profile)
    return sent


def _to_content(parts: tuple[Part, ...]) -> str | list[ChatCompletionContentPartParam]:
    if all(isinstance(part, TextPart) for part in parts):
        return extract_text(parts)
    return [_to_part(part) for part in parts]


def _to_part(part: Part) -> ChatCompletionContentPartParam:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, mime_type):
            return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}
        case FilePart(data, mime_type, name):
            return {"type": "file", "file": {"filename": name, "file_data": f"data:{mime_type};base64,{data}"}}


def _to_assistant_message(step: AssistantStep, profile: EndpointProfile) -> dict[str, Any]:
    # None, not an empty string, which some endpoints refuse beside calls.
    message: ChatCompletionAssistantMessageParam = {"role": "assistant", "content": step.text or None}
    if step.calls:
        message["tool_calls"] = _to_tool_calls(step, profile)
    fields: dict[str, Any] = {**message}
    if profile.echo_reasoning == "always" or (profile.echo_reasoning == "tool_turns" and step.calls):
        fields |= _read_echo(step, "reasoning")
    # DeepSeek refuses the conversation if the field is missing, even when it is empty.
    if profile.reasoning_field and step.calls:
        fields.setdefault(profile.reasoning_field, "")
    return fields | _read_echo(step, "message")


def _read_echo(step: AssistantStep, part: str) -> dict[str, Any]:
    part_of_echo = step.echo.get(part) if isinstance(step.echo, dict) else None
    return part_of_echo if isinstance(part_of_echo, dict) else {}


def _read_call_extras(step: AssistantStep) -> dict[str, dict[str, Any]]:
    """Return the signed fields of each call that has any. Endpoints may refuse the other extra fields of a call."""
    extras = {
        call_id: {name: value for name, value in extra.items() if name in _SIGNED_FIELDS}
        for call_id, extra in _read_echo(step, "calls").items()
        if isinstance(extra, dict)
    }
    return {call_id: extra for call_id, extra in extras.items() if extra}


def _to_tool_calls(step: AssistantStep, profile: EndpointProfile) -> list[Any]:
    extras = _read_call_extras(step) if profile.echo_call_extra else {}
    calls = [
        _to_tool_call(call, extras.get(original_id, {}))
        for call, original_id in zip(step.calls, step.original_ids, strict=True)
    ]
    # Gemini refuses a first call without a signature; it documents this value for calls of other models.
    if profile.unsigned_call and not extras:
        calls[0] = {**profile.unsigned_call, **calls[0]}
    return calls


def _to_tool_call(call: ToolCallRequest, extra: Mapping[str, Any]) -> dict[str, Any]:
    tool_call: ChatCompletionMessageFunctionToolCallParam = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": to_json_text(call.arguments)},
    }
    return {**extra, **tool_call}


def _to_tool_messages(step: AssistantStep, profile: EndpointProfile) -> list[ChatCompletionToolMessageParam]:
    return [
        {"role": "tool", "tool_call_id": call.id, "content": _to_tool_content(result, profile)}
        for call, result in zip(step.calls, step.results, strict=True)
    ]


def _to_tool_content(result: Result, profile: EndpointProfile) -> str | list[ChatCompletionContentPartTextParam]:
    """Return the content of a tool message as text only. Images and documents follow the results in a user message."""
    # The API accepts text only in a tool message.
    images = sum(isinstance(part, ImagePart) for part in result.media)
    documents = len(result.media) - images
    counted = [f"{number} {kind}(s)" for number, kind in ((images, "image"), (documents, "document")) if number]
    text = result.to_text(f"[{', '.join(counted)}: shown below]") if counted else result.to_text()
    return [{"type": "text", "text": text}] if profile.tool_content == "parts" else text


def _to_media_parts(step: AssistantStep) -> list[ChatCompletionContentPartParam]:
    media: list[ChatCompletionContentPartParam] = []
    for call, result in zip(step.calls, step.results, strict=True):
        if result.media:
            media.append({"type": "text", "text": f"[the result of {call.name}:]"})
            media.extend(_to_part(part) for part in result.media)
    return media


def _add_user(sent: list[Any], content: str | list[ChatCompletionContentPartParam], profile: EndpointProfile) -> None:
    """Append a user message, joined with a preceding user message: many chat templates require alternating roles."""
    if sent and sent[-1]["role"] == "tool" and not profile.user_after_tool:
        sent.append({"role": "assistant", "content": NO_ANSWER})
    if sent and sent[-1]["role"] == "user":
        sent[-1]["content"] = _join_contents(sent[-1]["content"], content)
    else:
        message: ChatCompletionUserMessageParam = {"role": "user", "content": content}
        sent.append(message)


def _add_assistant(sent: list[Any], message: dict[str, Any]) -> None:
    before = sent[-1] if sent else {}
    if before.get("role") == "assistant" and "tool_calls" not in before:
        text = "\n\n".join(text for text in (before["content"], message["content"]) if text)
        sent[-1] = message | {"content": text or None}
    else:
        sent.append(message)


def _join_contents(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    contents = ([{"type": "text", "text": text}] if isinstance(text, str) else text for text in (first, second))
    return [part for content in contents for part in content]
