"""Parses requests of Anthropic's Messages API (API reference, "Create a Message").

Newer clients send fields and blocks that this server does not know: these have no effect. Tools that Anthropic's
endpoint runs itself, or that its models know without a definition, are left out. Both are named in the response's
header ``x-ignored-parameters``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.message import (
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallRequest,
    ToolSpec,
)
from dial_client.messages.model import ModelSettings, Thinking, ToolChoice
from dial_client.runtime.json_fields import find_object, find_text, to_list, to_object, to_text
from dial_client.serve.http_messages import read_flag, read_list, read_object
from dial_client.serve.model_api.answer_request import (
    AnswerRequest,
    ShownActivity,
    build_error,
    check_choice,
    check_schema,
    collect_tools,
    parse_tool,
    read_activity,
    read_count,
    read_fraction,
    read_plain,
    read_stop,
    read_thinking,
    to_tool_name,
)
from dial_client.serve.model_api.message_parts import parse_data_url
from dial_client.serve.model_api.offered_models import NamedModel
from dial_client.serve.model_api.request_history import RequestHistory

_SUPPORTED = frozenset(
    {
        "max_tokens", "messages", "model", "output_config", "output_format", "stop_sequences", "stream", "system",
        "temperature", "thinking", "tool_choice", "tools", "top_p",
    }
)  # fmt: skip
# Parameters that concern only the endpoint that runs the model.
_WITHOUT_EFFECT = frozenset(
    {
        "cache_control", "context_management", "diagnostics", "inference_geo", "metadata", "service_tier", "speed",
        "user_profile_id", "workspace_id",
    }
)  # fmt: skip
# Claude Code begins its instructions with a line for Anthropic's billing, which differs in each request.
_BILLING = "x-anthropic-billing-header:"
_CLAUDE_CODE = "claude-cli/"
# The beginning of the name, in the header `anthropic-beta`, of Anthropic's own connector to MCP servers.
_CONNECTOR = "mcp-client-"
# The most thinking tokens of a level.
_BUDGETS: Sequence[tuple[int, Thinking]] = ((4_096, "low"), (16_384, "medium"))


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A request for a message."""

    answer: AnswerRequest
    shows_thinking: bool
    """True if the client has enabled thinking, and reads its blocks."""
    shows_calls: bool = False
    """True if the client has enabled Anthropic's MCP connector, and reads the blocks of calls of servers' tools."""


def parse_request(
    body: Mapping[str, Any], headers: Mapping[str, str], model: NamedModel, server_tools: Sequence[ToolSpec]
) -> MessagesRequest:
    """Parse a request.

    Args:
        body: The JSON object.
        headers: The headers of the request.
        model: The model that the body names.
        server_tools: The tools of the servers, which the request may name.

    Raises:
        HttpError: The request is invalid, or uses a parameter that is not supported.
    """
    tools, left_out = _parse_tools(read_list(body, "tools"))
    choice = _parse_tool_choice(body.get("tool_choice"))
    check_choice(choice, tools, server_tools)
    messages, unknown = _parse_messages(body, server_tools)
    output = read_object(body, "output_config")
    thinking = read_object(body, "thinking")
    ignored = {name for name, value in body.items() if name not in _SUPPORTED | _WITHOUT_EFFECT and value is not None}
    answer = AnswerRequest(
        model,
        messages,
        tools,
        ModelSettings(
            temperature=read_fraction(body.get("temperature"), "temperature", 1),
            top_p=read_fraction(body.get("top_p"), "top_p", 1),
            max_tokens=read_count(body.get("max_tokens"), "max_tokens"),
            thinking=read_thinking(output.get("effort"), "output_config.effort") or _parse_budget(thinking),
            stop=read_stop(body.get("stop_sequences"), "stop_sequences"),
            tool_choice=choice,
            parallel_calls=to_object(body.get("tool_choice")).get("disable_parallel_tool_use") is not True,
        ),
        stream=read_flag(body, "stream", default=False),
        schema=_parse_format(output.get("format") or body.get("output_format")),
        activity=read_activity(headers),
        is_plain=read_plain(headers) or _is_task(body, headers),
        ignored=(*sorted(ignored), *left_out, *unknown),
    )
    shows_thinking = thinking.get("type") not in (None, "disabled") and thinking.get("display") != "omitted"
    return MessagesRequest(
        answer,
        shows_thinking and answer.activity is not ShownActivity.NONE,
        _CONNECTOR in headers.get("anthropic-beta", ""),
    )


def _is_task(body: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    """Return whether Claude Code sends the request for itself, such as for a title, and not for a person.

    Only the turns of a person have tools. With the servers' tools, the model could call them for the title again.
    """
    return headers.get("user-agent", "").startswith(_CLAUDE_CODE) and not body.get("tools")


def _parse_tools(tools: Sequence[Any]) -> tuple[tuple[ToolSpec, ...], list[str]]:
    """Return the client's own tools, and the tools that are left out."""
    specs = []
    left_out = []
    for index, tool in enumerate(tools):
        definition = to_object(tool)
        if definition.get("type") in (None, "custom"):
            description, schema = definition.get("description"), definition.get("input_schema")
            specs.append(parse_tool(definition.get("name"), description, schema, f"tools[{index}]"))
        else:
            left_out.append(f"tools[{index}] ({to_text(definition['type'])})")
    return collect_tools(specs), left_out


def _parse_tool_choice(choice: Any) -> str | None:
    match to_object(choice).get("type"):
        case "none":
            return ToolChoice.NONE
        case "any":
            return ToolChoice.REQUIRED
        case "tool" if name := find_text(choice, "name"):
            return to_tool_name(name)
        case "auto":
            return None
        case _ if choice is None:
            return None
        case _:
            raise build_error("tool_choice", "must be of type auto, any, tool (with a name) or none")


def _parse_budget(thinking: Mapping[str, Any]) -> Thinking | None:
    """Return how much the model reasons, from a budget of tokens; None for none, and if the model decides."""
    if thinking.get("type") != "enabled":
        return None
    budget = read_count(thinking.get("budget_tokens"), "thinking.budget_tokens")
    return next((level for limit, level in _BUDGETS if budget is not None and budget <= limit), "high")


def _parse_format(format_: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the answer; None for an answer in text."""
    if format_ is None:
        return None
    if to_object(format_).get("type") != "json_schema":
        raise build_error("output_config.format", "must be of type json_schema")
    return check_schema(format_.get("schema"), "output_config.format.schema")


def _parse_messages(
    body: Mapping[str, Any], server_tools: Sequence[ToolSpec]
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Return the messages of the conversation, and the blocks that have no effect."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise build_error("messages", "must be a list with at least one message")
    reader = _MessageReader(server_tools)
    if system := body.get("system"):
        reader.add_system(system, "system")
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        content = to_object(message).get("content")
        match to_object(message).get("role"):
            case "system":
                reader.add_system(content, f"{path}.content")
            case "user":
                reader.add_user(content, f"{path}.content")
            case "assistant":
                reader.add_assistant(content, f"{path}.content")
            case _:
                raise build_error(f"{path}.role", "must be user, assistant or system")
    return reader.history.build(), tuple(reader.unknown)


class _MessageReader:
    """Reads the blocks of messages into a conversation."""

    def __init__(self, server_tools: Sequence[ToolSpec]) -> None:
        self.history = RequestHistory(server_tools)
        self.unknown: list[str] = []
        # The calls of servers' tools that the client was shown, until their results come.
        self._shown: dict[str, Mapping[str, Any]] = {}

    def add_system(self, content: Any, path: str) -> None:
        parts = self._parse_parts(content, path)
        texts = [part.text for part in parts if isinstance(part, TextPart) and not part.text.startswith(_BILLING)]
        self.history.add_message(Message(Role.SYSTEM, "\n\n".join(texts)))

    def add_user(self, content: Any, path: str) -> None:
        if isinstance(content, str):
            self.history.add_message(Message(Role.USER, content))
            return
        blocks = _read_blocks(content, path)
        # The results come first, as in the API itself: they have to follow the calls.
        for block, place in blocks:
            if block.get("type") == "tool_result":
                self._add_result(block, place)
        parts = [part for block, place in blocks for part in self._parse_block(block, place)]
        if parts or not blocks:
            self.history.add_message(Message(Role.USER, tuple(parts)))

    def _add_result(self, block: Mapping[str, Any], path: str) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            raise build_error(f"{path}.tool_use_id", "must be the id of a tool_use block")
        content = block.get("content")
        result: Content = content if isinstance(content, str) else self._parse_parts(content, f"{path}.content")
        self.history.add_result(call_id, result, is_error=block.get("is_error") is True)

    def add_assistant(self, content: Any, path: str) -> None:
        if isinstance(content, str):
            self.history.add_reply(content)
            return
        for block, place in _read_blocks(content, path):
            match block.get("type"):
                case "tool_use":
                    self.history.add_call(_parse_call(block, place))
                case "mcp_tool_use":
                    self._shown[to_text(block.get("id"))] = block
                case "mcp_tool_result":
                    self._add_shown_call(block, place)
                case _:
                    self.history.add_reply(self._parse_block(block, place))

    def _add_shown_call(self, block: Mapping[str, Any], path: str) -> None:
        call = self._shown.pop(to_text(block.get("tool_use_id")), None)
        if call is None:
            return
        content = block.get("content")
        result: Content = content if isinstance(content, str) else self._parse_parts(content, f"{path}.content")
        server, tool = to_text(call.get("server_name")), to_text(call.get("name"))
        is_error = block.get("is_error") is True
        self.history.add_shown_call(server, tool, to_object(call.get("input")), result, is_error=is_error)

    def _parse_parts(self, content: Any, path: str) -> tuple[Part, ...]:
        if isinstance(content, str):
            return (TextPart(content),)
        return tuple(part for block, place in _read_blocks(content, path) for part in self._parse_block(block, place))

    def _parse_block(self, block: Mapping[str, Any], path: str) -> tuple[Part, ...]:
        """Return the content of a block; nothing for a block that has no effect."""
        match block.get("type"):
            case "text":
                return (TextPart(to_text(block.get("text"))),)
            case "image":
                return (_parse_image(block, f"{path}.source"),)
            case "document":
                return self._parse_document(block, f"{path}.source")
            case "search_result":
                title = f"{to_text(block.get('title'))} ({to_text(block.get('source'))})"
                return (TextPart(title), *self._parse_parts(block.get("content"), f"{path}.content"))
            # Thinking has no valid signature: it is of the model here, and Anthropic's endpoint did not sign it.
            case "thinking" | "redacted_thinking" | "tool_result":
                return ()
            case kind:
                self.unknown.append(f"{path} ({to_text(kind)})")
                return ()

    def _parse_document(self, block: Mapping[str, Any], path: str) -> tuple[Part, ...]:
        source, title = find_object(block, "source"), to_text(block.get("title"))
        match source.get("type"):
            case "text":
                text = to_text(source.get("data"))
                return (TextPart(f"{title}\n\n{text}" if title else text),)
            case "content":
                return self._parse_parts(source.get("content"), f"{path}.content")
            case _:
                mime_type, data = _parse_source(source, path)
                return (FilePart(data, mime_type, title),)


def _read_blocks(content: Any, path: str) -> list[tuple[Mapping[str, Any], str]]:
    """Return the blocks of a message with their paths."""
    if content is not None and not isinstance(content, list):
        raise build_error(path, "must be a text or a list of blocks")
    blocks = [(block, f"{path}[{index}]") for index, block in enumerate(to_list(content))]
    for block, place in blocks:
        if not isinstance(block, Mapping):
            raise build_error(place, "must be a block with a type")
    return blocks


def _parse_call(block: Mapping[str, Any], path: str) -> ToolCallRequest:
    id_, name, arguments = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(id_, str) or not isinstance(name, str) or not isinstance(arguments or {}, dict):
        raise build_error(path, "must have an id and a name, both of them strings, and an object as input")
    return ToolCallRequest(id_, to_tool_name(name), arguments or {})


def _parse_image(block: Mapping[str, Any], path: str) -> ImagePart:
    mime_type, data = _parse_source(find_object(block, "source"), path)
    return ImagePart(data, mime_type)


def _parse_source(source: Mapping[str, Any], path: str) -> tuple[str, str]:
    """Return the media type and the base64 data of an image or a document."""
    if source.get("type") == "base64":
        url = f"data:{to_text(source.get('media_type'))};base64,{to_text(source.get('data'))}"
        return parse_data_url(url, f"{path}.data")
    return parse_data_url(source.get("url"), f"{path}.url")
