"""The conversations that were kept: list, show, delete."""

from __future__ import annotations

import json

from dial_client.cli.opening import say_notes
from dial_client.cli.options import ExitCode
from dial_client.errors import ConfigError
from dial_client.safe_text import one_line, safe
from dial_client.store import SQLStore

MOST = 100
"""Conversations that are listed."""


async def manage(action: str, conversation_id: str | None, *, as_json: bool) -> int:
    """List, show or delete conversations.

    Raises:
        ConfigError: the action is none of these, or lacks an id.
        ConversationNotFound: there is none with this id.
    """
    if action not in ("list", "show", "delete"):
        raise ConfigError(f"unknown action {action!r}", hint="one of list, show, delete")
    if action != "list" and conversation_id is None:
        raise ConfigError(f"{action} needs the id of a conversation", hint="`dial-chat conversations` lists them")
    store = SQLStore.sqlite()
    try:
        if action == "list":
            await _list(store, as_json=as_json)
        elif action == "show":
            await _show(store, conversation_id or "", as_json=as_json)
        else:
            await store.delete(conversation_id or "")
    finally:
        await store.aclose()
    return ExitCode.ANSWERED


async def _list(store: SQLStore, *, as_json: bool) -> None:
    found = await store.list(limit=MOST)
    if as_json:
        said = [
            {"id": one.id, "title": one.title, "updated_at": one.updated_at.isoformat(), "messages": one.message_count}
            for one in found
        ]
        print(json.dumps(said, indent=2))
        return
    for one in found:
        print(f"{one.id}  {one.updated_at:%Y-%m-%d %H:%M}  {one_line(one.title, 80)}")


async def _show(store: SQLStore, conversation_id: str, *, as_json: bool) -> None:
    conversation = await store.get(conversation_id)
    say_notes(conversation.notes)
    if as_json:
        messages = [message.to_dict() for message in conversation.messages]
        print(json.dumps({"id": conversation.id, "title": conversation.title, "messages": messages}, indent=2))
        return
    for message in conversation.messages:
        calls = "".join(f"\n→ {call.name}({json.dumps(dict(call.arguments))})" for call in message.tool_calls)
        print(f"{message.role.value}: {safe(message.text)}{safe(calls)}")
