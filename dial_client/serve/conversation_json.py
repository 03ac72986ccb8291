"""Conversations as JSON of the HTTP API."""

from __future__ import annotations

from typing import Any

from dial_client.conversations.conversation_view import ConversationView
from dial_client.stores.conversation_store import Conversation, ConversationSummary


def summary_to_dict(summary: Conversation | ConversationSummary) -> dict[str, Any]:
    """Return ``{"id", "title", "created", "updated"}``."""
    return {
        "id": summary.id,
        "title": summary.title,
        "created": summary.created_at.isoformat(),
        "updated": summary.updated_at.isoformat(),
    }


def view_to_dict(view: ConversationView) -> dict[str, Any]:
    """Return a conversation with its messages, their positions and versions, and the details of its turns."""
    conversation = view.conversation
    return summary_to_dict(conversation) | {
        "messages": [message.to_dict() for message in conversation.messages],
        "running": conversation.turn if conversation.running else None,
        "notes": list(conversation.notes),
        "settings": dict(view.settings or {}),
        **view.to_dict(),
    }
