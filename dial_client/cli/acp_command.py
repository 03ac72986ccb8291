"""The command ``acp``: answers an editor, which starts it, by the Agent Client Protocol on standard streams."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import dial_client
from dial_client.cli.approval.approval_modes import MEANINGS, find_reason_against_auto
from dial_client.cli.chat.conversation_list import FOLDER, Scope, build_metadata, list_conversations
from dial_client.cli.chat.own_commands import OwnCommand, read_own_commands
from dial_client.cli.default_model import with_default_model
from dial_client.cli.input.input_references import request_prompt
from dial_client.cli.load_settings import open_model, read_settings
from dial_client.cli.open_client import open_client, use_instructions
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.trust.folder_texts import read_folder_texts
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.gateway.standard_files import StandardFiles
from dial_client.hooks.server_callbacks import Callbacks
from dial_client.messages.errors import ConfigError
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore
from dial_client.tools.approval_mode import ApprovalMode

# The conversations of one list.
_PAGE = 50


async def answer_editor(options: Options, files: StandardFiles) -> int:
    """Answer until the editor closes standard input, and return the exit code. Nobody is asked at a terminal.

    Args:
        options: The options of the command line. Each session reads the configuration with them.
        files: Standard input and output, which carry nothing but the protocol.

    Raises:
        ConfigError: The package of the protocol is not installed, or no editor can be at the standard streams.
    """
    _check(files)
    try:
        from dial_client.acp.editor_agent import EditorAgent, serve_editor
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "acp":
            raise
        problem = "the Agent Client Protocol needs the package agent-client-protocol"
        raise ConfigError(problem, hint="pip install 'dial-client[acp]'") from error
    await serve_editor(EditorAgent(partial(_open_client, options), _list_stored, dial_client.__version__), files)
    return ExitCode.ANSWERED


def _check(files: StandardFiles) -> None:
    """Check that an editor, or a person who tries, can be at the standard streams; asyncio cannot wait for others."""
    if sys.platform == "win32":
        return
    for file in (files.input, files.output):
        mode = os.fstat(file).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file)):
            raise ConfigError(
                "acp answers an editor through pipes", hint="the editor starts it: see `dial-chat help editors`"
            )
    if os.isatty(files.input):
        print(
            "dial-chat: acp answers an editor, which starts it: see `dial-chat help editors`. Ctrl-D ends it",
            file=sys.stderr,
        )


@asynccontextmanager
async def _open_client(options: Options, person: Any) -> AsyncGenerator[Any, None]:
    """Open the client of a session in the current folder; `person` is an `acp.permissions.EditorPerson`."""
    from dial_client.acp.editor_agent import OpenedClient

    notes: list[str] = []
    settings = await read_settings(options, may_ask=False, leaves_out=True, report=notes.append)
    settings = await with_default_model(options, settings)
    texts = await read_folder_texts(options, settings)
    commands, problems = read_own_commands(texts.commands, ())
    callbacks = Callbacks(elicit=person.elicit, sample="model" if options.sampling else None)
    async with (
        open_client(options, settings, open_model(options, settings), person.approve, callbacks) as dial,
        aclosing(MemoryStore() if options.no_save else SQLStore.sqlite()) as store,
    ):
        if isinstance(store, SQLStore):
            await store.open()
        use_instructions(dial, texts)
        is_auto_possible = not find_reason_against_auto(options)
        yield OpenedClient(
            dial,
            ConversationManager(dial, store),
            settings.servers,
            {mode: text for mode, text in MEANINGS.items() if mode is not ApprovalMode.AUTO or is_auto_possible},
            [_to_session_command(command) for command in commands.values()],
            build_metadata({}, dial.model.name, is_one_shot=False),
            (*notes, *problems),
            partial(request_prompt, dial),
            settings.default_model or "",
            tuple(settings.models),
        )


async def _list_stored(folder: str | None, cursor: str | None) -> Any:
    """Return conversations as an `acp.editor_agent.ListStored` does. Nothing is stored with ``--no-save``."""
    from dial_client.acp.editor_agent import StoredSession

    async with aclosing(SQLStore.sqlite()) as store:
        page = await list_conversations(store, Scope(folder, has_one_shots=False), _PAGE, cursor=cursor)
    stored = [
        StoredSession(found.id, str(found.metadata.get(FOLDER) or ""), found.title, found.updated_at.isoformat())
        for found in page
    ]
    return [session for session in stored if session.folder], page.cursor


def _to_session_command(command: OwnCommand) -> Any:
    from dial_client.acp.editor_session import SessionCommand

    return SessionCommand(command.name[1:], command.description, command.arguments, command.build_message)
