"""Mapping of server requests from the SDK's types to the types of this package, and of the results back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dial_client.hooks.server_callbacks import SamplingReply, SamplingRequest, ServerLog
from dial_client.messages.message import ImagePart, Message, Role, TextPart
from dial_client.runtime.safe_text import sanitize

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ListRootsResult,
        LoggingMessageNotificationParams,
    )

MAX_LOG_CHARS = 2_000
"""Characters kept of one log message."""


def map_sampling_request(server: str, params: CreateMessageRequestParams, tools: tuple[str, ...]) -> SamplingRequest:
    """Map a sampling request; its ``includeContext`` is ignored."""
    hints = params.model_preferences.hints if params.model_preferences else None
    return SamplingRequest(
        server,
        tuple(_to_message(message.role, message.content) for message in params.messages),
        params.max_tokens,
        sanitize(params.system_prompt or ""),
        params.temperature,
        tuple(params.stop_sequences or ()),
        tuple(sanitize(hint.name) for hint in hints or () if hint.name),
        tools,
    )


def _to_message(role: str, content: Any) -> Message:
    blocks = content if isinstance(content, list) else [content]
    parts = tuple(_to_part(block) for block in blocks)
    is_text = all(isinstance(part, TextPart) for part in parts)
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return Message(Role.ASSISTANT if role == "assistant" else Role.USER, text if is_text else parts)


def _to_part(block: Any) -> TextPart | ImagePart:
    match block.type:
        case "text":
            return TextPart(sanitize(block.text))
        case "image":
            return ImagePart(block.data, block.mime_type)
        case kind:
            return TextPart(f"[{kind} content, which is not supported here]")


def map_sampling_reply(reply: SamplingReply) -> CreateMessageResult:
    """Map the reply of a model."""
    from mcp_types import CreateMessageResult, TextContent

    content = TextContent(type="text", text=reply.text)
    return CreateMessageResult(role="assistant", content=content, model=reply.model, stop_reason=reply.stop_reason)


def to_root_uri(folder: str) -> str:
    """Return the URI of a folder; a file URI is returned unchanged."""
    return folder if folder.startswith("file://") else Path(folder).absolute().as_uri()


def map_roots(roots: Iterable[str]) -> ListRootsResult:
    """Map the folders that are the roots of a server."""
    from mcp_types import ListRootsResult, Root
    from pydantic import FileUrl

    entries = ((uri, uri.rstrip("/").rpartition("/")[2]) for uri in map(to_root_uri, roots))
    return ListRootsResult(roots=[Root(uri=FileUrl(uri), name=name or None) for uri, name in entries])


def map_log(server: str, params: LoggingMessageNotificationParams) -> ServerLog:
    """Map a log message: unsafe characters are removed, and long texts are cut."""
    text = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False, default=str)
    cut = text if len(text) <= MAX_LOG_CHARS else f"{text[:MAX_LOG_CHARS]}…"
    return ServerLog(server, params.level, sanitize(cut), sanitize((params.logger or "")[:200]))
