"""Anthropic's Messages API.

https://platform.claude.com/docs/en/api/messages. The content blocks of a reply are kept unchanged: thinking blocks are
sent back with their signatures, unmodified and in their original positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from dial_client.messages.errors import OUTPUT_FORMAT_UNSUPPORTED, ProviderError
from dial_client.messages.message import FilePart, ImagePart, Message, Part, TextPart, ToolSpec
from dial_client.messages.model import ModelRequest, OutputFormat, Thinking
from dial_client.providers.api_history import NO_TEXT, AssistantStep, Result, UserStep, normalize
from dial_client.providers.http.http_provider import HttpProvider, build_sampling_fields
from dial_client.providers.messages_stream import MessagesStreamParser
from dial_client.providers.tool_call_codec import to_plain_json
from dial_client.runtime.text import replace_surrogates
from dial_client.schema.provider_schema import can_be_strict, to_output_schema
from dial_client.settings.endpoint_profile import (
    ANTHROPIC,
    NEWEST_MESSAGES_VERSION,
    OLDER_MESSAGES_VERSION,
    EndpointProfile,
)

if TYPE_CHECKING:
    from anthropic.types import (
        ContentBlockParam,
        DocumentBlockParam,
        ImageBlockParam,
        MessageCreateParams,
        MessageParam,
        OutputConfigParam,
        TextBlockParam,
        ToolChoiceParam,
        ToolParam,
        ToolResultBlockParam,
        ToolUseBlockParam,
    )
    from anthropic.types.message_create_params import MessageCreateParamsBase

_ID = r"[a-zA-Z0-9_-]{1,64}"
_DEFAULT_MAX_TOKENS = 8_192
_MAX_UNSTREAMED_TOKENS = 21_333
"""The highest ``max_tokens`` of an unstreamed request: the API closes connections that are idle for ten minutes."""


_VERSION = "anthropic-version"
_VERSION_NOTE = (
    f"the endpoint does not accept version {NEWEST_MESSAGES_VERSION} of the API: {OLDER_MESSAGES_VERSION} is sent"
)


class MessagesProvider(HttpProvider):
    """A provider for endpoints with the Messages API."""

    api = "messages"
    search_tool = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}  # noqa: RUF012 - fixed
    required = frozenset({"max_tokens"})
    absent_settings = frozenset({"seed"})
    _is_older_version = False
    """True after the endpoint has refused the newest version of the API."""

    def _get_path(self) -> str:
        return "/messages" if self.endpoint.base_url.endswith("/v1") else "/v1/messages"

    def _create_parser(self) -> MessagesStreamParser:
        return MessagesStreamParser()

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        definition: ToolParam = {"name": tool.name, "input_schema": dict(tool.input_schema or {"type": "object"})}
        if self._adaptation.profile.strict:
            definition["strict"] = True
        if tool.deferred:
            definition["defer_loading"] = True
        if tool.description:
            definition["description"] = tool.description
        return {**definition}

    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        profile = self._adaptation.profile
        messages = to_messages(request.messages, self._name, profile, notes)
        settings = self._choose_settings(request, notes, has_tools=has_tools)
        limit = settings.max_tokens or _DEFAULT_MAX_TOKENS
        params: MessageCreateParamsBase = {"model": self._model, "max_tokens": limit, "messages": messages}
        if system := replace_surrogates(request.instruction_text):
            params["system"] = system
        if settings.tool_choice is not None:
            params["tool_choice"] = _encode_choice(settings.tool_choice)
        if not has_tools and (names := _list_called_tools(messages)):
            # Bedrock refuses a history with calls but without tools.
            params["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            params["tool_choice"] = {"type": "none"}
        # One mark at the end caches all before it, and moves along with the conversation.
        if profile.prompt_cache:
            params["cache_control"] = {"type": "ephemeral"}
        # The API refuses stop sequences of white space only.
        if request.stop and (stop := [text for text in request.stop if text.strip()]):
            params["stop_sequences"] = stop
        if settings.thinking is not None:
            params["thinking"] = {"type": "disabled"} if settings.thinking == "none" else {"type": "adaptive"}
        if output_config := _build_output_config(request.output_format, settings.thinking):
            params["output_config"] = output_config
        # A long reply without a stream would be lost with its connection, so it is streamed all the same.
        is_streamed = request.stream or limit > _MAX_UNSTREAMED_TOKENS
        body: MessageCreateParams
        body = {**params, "stream": True} if is_streamed else {**params, "stream": False}
        return {**body, **build_sampling_fields(settings)}

    def _adapt_request(
        self,
        error: ProviderError,
        request: ModelRequest,
        fields: dict[str, Any],
        tools: tuple[ToolSpec, ...],
        notes: list[str],
    ) -> tuple[ModelRequest, str]:
        # Gateways may know only the older version; the answer is the same for this package.
        if error.status == 400 and _VERSION in str(error) and _VERSION_NOTE not in notes and self._use_older_version():
            return request, _VERSION_NOTE
        return super()._adapt_request(error, request, fields, tools, notes)

    def _use_older_version(self) -> bool:
        """Send the older API version from now on; return False if the newest version was never sent."""
        headers = dict(self.endpoint.headers)
        if headers.get(_VERSION) == NEWEST_MESSAGES_VERSION:
            headers[_VERSION] = OLDER_MESSAGES_VERSION
            self._transport.endpoint = replace(self.endpoint, headers=headers)
            self._is_older_version = True
        return self._is_older_version

    def _add_paused_reply(self, fields: dict[str, Any], parser: Any) -> dict[str, Any]:
        if blocks := drop_empty_blocks(parser.blocks):
            fields["messages"].append({"role": "assistant", "content": blocks})
        return fields


def _encode_choice(choice: str) -> ToolChoiceParam:
    if choice == "none":
        return {"type": "none"}
    return {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}


def _build_output_config(form: OutputFormat | None, thinking: Thinking | None) -> OutputConfigParam:
    """Return the ``output_config`` field with the schema of the answer and the effort of the model.

    Raises:
        ProviderError: The schema has open objects, which the API does not accept: all property names must be known.
    """
    config: OutputConfigParam = {}
    if form is not None:
        if not can_be_strict(form.schema):
            raise ProviderError("the API does not support schemas with open objects", code=OUTPUT_FORMAT_UNSUPPORTED)
        config["format"] = {"type": "json_schema", "schema": to_output_schema(form.schema, "anthropic")[0]}
    if thinking is not None and thinking != "none":
        config["effort"] = "low" if thinking == "minimal" else thinking  # with thinking, no effort is lower
    return config


def to_messages(
    messages: Sequence[Message],
    provider_name: str,
    profile: EndpointProfile = ANTHROPIC,
    notes: list[str] | None = None,
) -> list[Any]:
    """Return the ``messages`` of a request, which are valid whatever conversation they are built from.

    Args:
        messages: The conversation, without system messages.
        provider_name: The name of the provider whose echoes are sent.
        profile: The flags that say which content the endpoint accepts.
        notes: Receives notes on content that the model is not shown.
    """
    steps = normalize(messages, provider_name, _ID, profile, notes)
    sent: list[Any] = []
    # The first message must be of the user.
    if not isinstance(steps[0], UserStep):
        _append_blocks(sent, "user", [{"type": "text", "text": NO_TEXT}])
    for step in steps:
        if isinstance(step, UserStep):
            _append_blocks(sent, "user", [_to_part(part) for part in step.parts])
            continue
        _append_blocks(sent, "assistant", _read_echo(step) or _build_blocks(step))
        for call, result in zip(step.calls, step.results, strict=True):
            _append_blocks(sent, "user", [_to_tool_result(call.id, result)])
    return sent


def drop_empty_blocks(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return received blocks without empty text blocks, which the API refuses."""
    return [
        block
        for block in blocks
        if isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and (block["type"] != "text" or str(block.get("text") or "").strip())
    ]


def _read_echo(step: AssistantStep) -> list[dict[str, Any]]:
    """Return the echo's blocks, with valid ids for calls; an empty list if the calls are not those of the step."""
    blocks = drop_empty_blocks(step.echo) if isinstance(step.echo, list) else []
    if [block.get("id") for block in blocks if block.get("type") == "tool_use"] != list(step.original_ids):
        return []
    calls = iter(step.calls)
    valid = []
    for block in blocks:
        if block.get("type") == "tool_use":
            call = next(calls)
            arguments = block.get("input") if isinstance(block.get("input"), dict) else call.arguments
            valid.append(block | {"id": call.id, "name": call.name, "input": to_plain_json(arguments)})
        else:
            valid.append(to_plain_json(block))
    return valid


def _build_blocks(step: AssistantStep) -> list[ContentBlockParam]:
    blocks: list[ContentBlockParam] = [{"type": "text", "text": step.text}] if step.text else []
    for call in step.calls:
        use: ToolUseBlockParam = {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": dict(call.arguments),
        }
        blocks.append(use)
    return blocks


def _to_tool_result(call_id: str, result: Result) -> ToolResultBlockParam:
    parts = [_to_part(part) for part in result.parts]
    content: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    block: ToolResultBlockParam = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if result.is_error:
        block["is_error"] = True
    return block


def _to_part(part: Part) -> TextBlockParam | ImageBlockParam | DocumentBlockParam:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, mime_type):
            # `api_history` lets only the four types through that the API accepts.
            media_type: Any = mime_type
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case FilePart(data, _, name):
            return {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": data},
                "title": name,
            }


def _append_blocks(sent: list[Any], role: Literal["user", "assistant"], blocks: Sequence[Any]) -> None:
    """Append blocks, to the last message if it has the same role: one message must have the results of all calls."""
    if sent and sent[-1]["role"] == role:
        sent[-1]["content"].extend(blocks)
    elif blocks:
        content = list(blocks)
        message: MessageParam
        message = {"role": "user", "content": content} if role == "user" else {"role": "assistant", "content": content}
        sent.append(message)


def _list_called_tools(messages: Sequence[dict[str, Any]]) -> list[str]:
    blocks = (block for message in messages for block in message["content"])
    return sorted({str(block["name"]) for block in blocks if block.get("type") == "tool_use"})
