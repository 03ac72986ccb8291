"""Contexts of MCP Apps: text that apps add to the user's next message (``ui/update-model-context``)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

from dial_client.messages.message import Message, TextPart
from dial_client.runtime.safe_text import sanitize
from dial_client.serve.http_responses import HttpError

MAX_CONTEXTS = 8
"""Contexts per message. The page keeps the same number of apps open."""
MAX_CONTEXT = 20_000
"""Characters of one context."""


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The text that an app of a server adds to a message."""

    server: str
    text: str


def read_app_contexts(body: dict[str, Any], servers: Container[str]) -> tuple[ModelContext, ...]:
    """Return the contexts in the body of a chat request.

    Raises:
        HttpError: A context is malformed, or names a server that does not exist.
    """
    contexts = body.get("app_contexts") or []
    if not isinstance(contexts, list) or len(contexts) > MAX_CONTEXTS:
        raise _build_error(f"app_contexts must be a list of at most {MAX_CONTEXTS}")
    return tuple(_read_context(context, servers) for context in contexts)


def add_app_contexts(message: Message, contexts: tuple[ModelContext, ...]) -> Message:
    """Return a user's message with the contexts as further parts, marked as text from their servers."""
    if not contexts:
        return message
    content = message.content
    message_parts = (TextPart(content),) if isinstance(content, str) else content
    parts = tuple(TextPart(_format_context(context), foreign=True) for context in contexts)
    sources = dict.fromkeys(source for source in (message.taint, *(context.server for context in contexts)) if source)
    return replace(message, content=(*message_parts, *parts), taint=", ".join(sources))


def _format_context(context: ModelContext) -> str:
    return sanitize(
        f"[context from an app of the server {context.server}; the app wrote it]\n{context.text}\n[end of context]"
    )


def _read_context(context: Any, servers: Container[str]) -> ModelContext:
    server, text = (context.get("server"), context.get("text")) if isinstance(context, dict) else (None, None)
    if not isinstance(server, str) or server not in servers:
        raise _build_error("a context must name a server")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_CONTEXT:
        raise _build_error(f"a context must have a text of at most {MAX_CONTEXT:,} characters")
    return ModelContext(server, text)


def _build_error(message: str) -> HttpError:
    return HttpError(400, message, "bad_app_contexts", param="app_contexts")
