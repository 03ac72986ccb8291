"""What servers ask for, from the SDK's terms into the host's, and the answers back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dial_client.callbacks.server_callbacks import SamplingReply, SamplingRequest, ServerLog
from dial_client.messages import ImagePart, Message, Role, TextPart
from dial_client.text.safe_text import safe

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ListRootsResult,
        LoggingMessageNotificationParams,
    )

MAX_LOG_CHARS = 2_000
"""Characters of one log message that are kept."""


def sampling_request(server: str, params: CreateMessageRequestParams, tools: tuple[str, ...]) -> SamplingRequest:
    """Read a request for a model's words; what asks for context of other servers is not looked at."""
    hints = params.model_preferences.hints if params.model_preferences else None
    return SamplingRequest(
        server,
        tuple(_message(message.role, message.content) for message in params.messages),
        params.max_tokens,
        safe(params.system_prompt or ""),
        params.temperature,
        tuple(params.stop_sequences or ()),
        tuple(safe(hint.name) for hint in hints or () if hint.name),
        tools,
    )


def _message(role: str, content: Any) -> Message:
    blocks = content if isinstance(content, list) else [content]
    parts = tuple(_part(block) for block in blocks)
    is_text = all(isinstance(part, TextPart) for part in parts)
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return Message(Role.ASSISTANT if role == "assistant" else Role.USER, text if is_text else parts)


def _part(block: Any) -> TextPart | ImagePart:
    match block.type:
        case "text":
            return TextPart(safe(block.text))
        case "image":
            return ImagePart(block.data, block.mime_type)
        case kind:
            return TextPart(f"[{kind}, which cannot be passed on]")


def sampling_result(reply: SamplingReply) -> CreateMessageResult:
    """Say what the model said."""
    from mcp_types import CreateMessageResult, TextContent

    content = TextContent(type="text", text=reply.text)
    return CreateMessageResult(role="assistant", content=content, model=reply.model, stop_reason=reply.stop_reason)


def root_uri(folder: str) -> str:
    """Give the URI of a folder; one of a file URI is itself."""
    return folder if folder.startswith("file://") else Path(folder).absolute().as_uri()


def roots_result(roots: Iterable[str]) -> ListRootsResult:
    """Name the folders a server may use."""
    from mcp_types import ListRootsResult, Root
    from pydantic import FileUrl

    named = ((uri, uri.rstrip("/").rpartition("/")[2]) for uri in map(root_uri, roots))
    return ListRootsResult(roots=[Root(uri=FileUrl(uri), name=name or None) for uri, name in named])


def log_of(server: str, params: LoggingMessageNotificationParams) -> ServerLog:
    """Read a log message, cleaned and cut."""
    text = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False, default=str)
    cut = text if len(text) <= MAX_LOG_CHARS else f"{text[:MAX_LOG_CHARS]}…"
    return ServerLog(server, params.level, safe(cut), safe((params.logger or "")[:200]))
