"""The command ``conversations``: list, show, delete, export and import stored conversations."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial_client.cli.chat.conversation_list import (
    EVERYTHING,
    FOLDER,
    MODEL,
    ONE_SHOT,
    Scope,
    describe,
    find_id,
    list_conversations,
)
from dial_client.cli.streams.error_stream import print_notes, warn
from dial_client.conversations import export
from dial_client.conversations.history import build_transcript, repair_history
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.safe_text import sanitize
from dial_client.runtime.text import suggest_name
from dial_client.stores.conversation_store import Conversation, ConversationSummary
from dial_client.stores.sql_store import SQLStore

# The maximum size of an imported conversation in bytes.
MAX_IMPORT = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """The conversations to list, and the form of the output."""

    as_json: bool = False
    search: str = ""
    limit: int = 100
    cursor: str | None = None
    form: str = "markdown"
    is_everywhere: bool = False
    """Whether conversations of all folders, and one-shots, are listed."""


async def manage(action: str, target: str | None, query: ConversationQuery) -> None:
    """List, show, delete, export or import conversations.

    Raises:
        ConfigError: The action is unknown, its target is missing, or an option or the imported file is wrong.
        ConversationNotFound: No id begins with the target.
    """
    if action not in _ACTIONS:
        hint = "dial-chat conversations --search WORDS" if action in ("search", "find") else ""
        raise ConfigError(f"unknown action {action!r}", hint or suggest_name(action, _ACTIONS))
    if action != "list" and target is None:
        if action == "import":
            raise ConfigError("import needs a file", hint="dial-chat conversations import FILE; - is standard input")
        raise ConfigError(f"{action} needs the id of a conversation", hint="`dial-chat conversations` lists the ids")
    async with aclosing(SQLStore.sqlite()) as store:
        await _ACTIONS[action](store, target or "", query)


async def _list(store: SQLStore, _: str, query: ConversationQuery) -> None:
    if query.limit < 1:
        raise ConfigError("--limit is at least 1")
    scope = EVERYTHING if query.is_everywhere else Scope.of_folder()
    found = await list_conversations(store, scope, query.limit, cursor=query.cursor, search=query.search)
    if query.as_json:
        print(json.dumps([_encode_summary(summary) for summary in found], indent=2))
    else:
        for summary in found:
            print(describe(summary))
    if found.cursor is not None:
        warn(f"there are more: --cursor {found.cursor}")
    elif not query.is_everywhere and not found:
        warn("there is no conversation of this folder; --all lists those of all folders, and single questions")


def _encode_summary(summary: ConversationSummary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "title": summary.title,
        "created_at": summary.created_at.isoformat(),
        "updated_at": summary.updated_at.isoformat(),
        "messages": summary.message_count,
        "running": summary.running,
        "folder": summary.metadata.get(FOLDER),
        "model": summary.metadata.get(MODEL),
        "one_shot": bool(summary.metadata.get(ONE_SHOT)),
    }


async def _show(store: SQLStore, conversation_id: str, query: ConversationQuery) -> None:
    conversation = await _read(store, conversation_id)
    if query.as_json:
        print(export.to_json(conversation), end="")
        return
    for message in conversation.messages:
        calls = "".join(f"\n→ {call.name}({json.dumps(dict(call.arguments))})" for call in message.tool_calls)
        print(f"{message.role.value}: {sanitize(message.text)}{sanitize(calls)}")


async def _export(store: SQLStore, conversation_id: str, query: ConversationQuery) -> None:
    form = "json" if query.as_json else query.form
    if form not in export.FORMS:
        raise ConfigError(f"unknown form {form!r}", hint=f"one of {', '.join(export.FORMS)}")
    print(export.FORMS[form](await _read(store, conversation_id)), end="")


async def _import(store: SQLStore, name: str, query: ConversationQuery) -> None:
    title, messages = export.from_json(_read_text(name))
    made = await store.create(title, repair_history(messages), metadata={FOLDER: str(Path.cwd())})
    print(json.dumps({"id": made.id, "title": made.title}) if query.as_json else made.id)


def _read_text(name: str) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            data = file.read(MAX_IMPORT + 1)
        if len(data) > MAX_IMPORT:
            raise ConfigError(f"this is larger than {MAX_IMPORT // 1024**2} MiB", path=name)
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {describe_system_error(error)}", path=name) from None


async def _delete(store: SQLStore, conversation_id: str, _: ConversationQuery) -> None:
    await store.delete(await find_id(store, conversation_id))


async def _read(store: SQLStore, conversation_id: str) -> Conversation:
    conversation = build_transcript(await store.get(await find_id(store, conversation_id)))
    print_notes((*conversation.notes, "a turn is running") if conversation.running else conversation.notes)
    return conversation


_ACTIONS = {"list": _list, "show": _show, "delete": _delete, "export": _export, "import": _import}
