"""The agent that an editor starts: answers the requests of the Agent Client Protocol.

One process works in one folder, that of its first session: rules about paths are judged by the current folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import acp
import anyio
from acp.exceptions import RequestError
from acp.helpers import ContentBlock
from acp.interfaces import Agent, Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from acp.stdio import stdio_streams

from dial_client.acp.editor_servers import EditorServer, read_editor_servers
from dial_client.acp.editor_session import EditorSession, RequestPrompt, SessionCommand
from dial_client.acp.editor_transport import EditorTransport, OneLine
from dial_client.acp.permissions import EditorPerson
from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.gateway.standard_files import StandardFiles
from dial_client.messages.errors import ConversationNotFound, DialError
from dial_client.runtime.logs import get_logger
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.approval_mode import ApprovalMode

log = get_logger(__name__)

# Seconds for which a session waits for the servers that its editor passes.
_PATIENCE = 5.0
# Bytes of one message of an editor, which may have images.
_MAX_MESSAGE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenedClient:
    """What a session works with."""

    dial: DialClient
    manager: ConversationManager
    servers: Mapping[str, Any]
    """The entries of the configuration's servers, by name."""
    modes: Mapping[ApprovalMode, str] = field(default_factory=dict)
    """The modes that are possible in this folder, each with its meaning."""
    commands: Sequence[SessionCommand] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of a new conversation."""
    notes: Sequence[str] = ()
    """What the user is to know of the configuration."""
    request_prompt: RequestPrompt | None = None
    """Returns the message of a prompt of a server, given ``/server:prompt`` and its arguments."""
    default_model: str = ""
    """The name of the model that answers if the conversation has no other."""
    models: Sequence[str] = ()
    """The names of the models of the configuration."""


# Opens a client for the current folder, whose calls a person approves.
OpenClient = Callable[[EditorPerson], AbstractAsyncContextManager[OpenedClient]]


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A conversation that an editor can load."""

    id: str
    folder: str
    title: str
    updated: str
    """When it was changed, in the form of ISO 8601."""


# Lists the conversations of a folder, or with None of all, after a cursor; returns the next cursor, too.
ListStored = Callable[[str | None, str | None], Awaitable[tuple[Sequence[StoredSession], str | None]]]


class EditorAgent:
    """The agent; its methods are those of `acp.interfaces.Agent`.

    Args:
        open_client: Opens the client of each session.
        list_stored: Lists the conversations that can be loaded.
        version: The version of this program.
    """

    def __init__(self, open_client: OpenClient, list_stored: ListStored, version: str) -> None:
        self._open_client = open_client
        self._list_stored = list_stored
        self._version = version
        self._client: Client | None = None
        self._capabilities = ClientCapabilities()
        self._folder: Path | None = None
        # The modes that are possible in the folder.
        self._modes: Mapping[ApprovalMode, str] = {}
        self._announcing: set[asyncio.Task[None]] = set()
        self._sessions: dict[str, tuple[EditorSession, AsyncExitStack]] = {}

    def on_connect(self, conn: Client) -> None:
        """Remember the connection."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 - an agent answers with the version that it has
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,  # noqa: ARG002
        **_: Any,
    ) -> InitializeResponse:
        """Say what this agent can do."""
        self._capabilities = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_info=Implementation(name="dial-chat", title="dial-chat", version=self._version),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[EditorServer] | None = None, **_: Any
    ) -> NewSessionResponse:
        """Begin a session with a new conversation."""
        session = await self._open(cwd, mcp_servers or (), None)
        self._announce(session)
        modes, options = self._describe_modes(session), await session.describe_options()
        return NewSessionResponse(session_id=session.id, modes=modes, config_options=options)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[EditorServer] | None = None, **_: Any
    ) -> LoadSessionResponse:
        """Go on with a conversation, and send its messages."""
        await self._close(session_id)
        session = await self._open(cwd, mcp_servers or (), session_id)
        await session.replay()
        self._announce(session)
        return LoadSessionResponse(modes=self._describe_modes(session), config_options=await session.describe_options())

    async def set_config_option(
        self, config_id: str, session_id: str, value: Any, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Change the model that answers."""
        session = self._find(session_id)
        options = await session.set_option(config_id, value)
        if options is None:
            raise RequestError.invalid_params({"problem": f"there is no option {config_id!r} with this value"})
        return SetSessionConfigOptionResponse(config_options=options)

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """List the conversations of a folder, or of all, the latest first."""
        try:
            stored, following = await self._list_stored(cwd, cursor)
        except DialError as error:
            raise RequestError(-32603, str(error)) from error
        sessions = [
            SessionInfo(session_id=each.id, cwd=each.folder, title=each.title, updated_at=each.updated)
            for each in stored
        ]
        return ListSessionsResponse(sessions=sessions, next_cursor=following)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        """Change what runs without a question."""
        session = self._find(session_id)
        if mode_id not in [mode.id for mode in self._describe_modes(session).available_modes]:
            raise RequestError.invalid_params({"problem": f"there is no mode {mode_id!r} in this folder"})
        session.dial.approvals.mode = ApprovalMode(mode_id)
        return SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: Sequence[ContentBlock], **_: Any) -> PromptResponse:
        """Run a turn."""
        session = self._find(session_id)
        try:
            return await session.prompt(prompt)
        except DialError as error:
            raise RequestError(-32603, str(error)) from error

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel the turn of a session."""
        if session_id in self._sessions:
            self._find(session_id).cancel()

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """End a session; its conversation stays stored."""
        await self._close(session_id)
        return CloseSessionResponse()

    async def aclose(self) -> None:
        """End all sessions."""
        for session_id in list(self._sessions):
            await self._close(session_id)

    async def _open(self, cwd: str, servers: Sequence[EditorServer], known: str | None) -> EditorSession:
        assert self._client is not None
        self._enter_folder(cwd)
        person = EditorPerson(self._client, self._capabilities)
        stack = AsyncExitStack()
        try:
            opened = await stack.enter_async_context(self._open_client(person))
            notes = list(opened.notes)
            added = dict(read_editor_servers(servers, opened.servers, cwd, notes.append))
            person.servers = {**opened.servers, **added}
            await _add_servers(opened.dial, added, stack, notes)
            if known is None:
                known = (await opened.manager.create(metadata=opened.metadata)).id
            else:
                await opened.manager.get(known)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await stack.aclose()
            if isinstance(error, ConversationNotFound):
                raise RequestError.resource_not_found(known) from error
            if isinstance(error, DialError):
                raise RequestError(-32603, str(error)) from error
            raise
        person.session_id = known
        commands = {command.name: command for command in opened.commands}
        session = EditorSession(
            *(known, self._client, opened.dial, opened.manager, person.servers, person.calls), commands, notes
        )
        session.request_prompt = opened.request_prompt
        session.default_model, session.models = opened.default_model, opened.models
        self._modes = opened.modes
        self._sessions[known] = session, stack
        return session

    def _announce(self, session: EditorSession) -> None:
        """Send the commands of a session behind the response that names it, which is written first."""
        task = asyncio.create_task(session.announce_commands())
        self._announcing.add(task)
        task.add_done_callback(self._announcing.discard)

    def _enter_folder(self, cwd: str) -> None:
        folder = Path(cwd)
        if not folder.is_absolute() or not folder.is_dir():
            raise RequestError.invalid_params({"problem": f"{cwd} is no folder"})
        if self._folder is None:
            os.chdir(folder)
            self._folder = folder
        elif self._folder != folder:
            problem = f"this process works in {self._folder}: start another dial-chat acp for {folder}"
            raise RequestError.invalid_params({"problem": problem})

    def _describe_modes(self, session: EditorSession) -> SessionModeState:
        modes = [SessionMode(id=mode, name=mode.title(), description=text) for mode, text in self._modes.items()]
        return SessionModeState(current_mode_id=session.dial.approvals.mode, available_modes=modes)

    def _find(self, session_id: str) -> EditorSession:
        if session_id not in self._sessions:
            raise RequestError.invalid_params({"problem": f"there is no session {session_id!r}"})
        return self._sessions[session_id][0]

    async def _close(self, session_id: str) -> None:
        found = self._sessions.pop(session_id, None)
        if found is not None:
            session, stack = found
            session.cancel()
            await stack.aclose()


async def _add_servers(
    dial: DialClient, servers: Mapping[str, ServerSettings], stack: AsyncExitStack, notes: list[str]
) -> None:
    """Connect servers side by side; one that is not ready after a while goes on starting, and delays nobody.

    A server that fails is a note of the turn.
    """
    adding = [asyncio.create_task(dial.add_server(name, entry)) for name, entry in servers.items()]
    if not adding:
        return

    async def stop() -> None:
        for task in adding:
            task.cancel()
        await asyncio.gather(*adding, return_exceptions=True)

    stack.push_async_callback(stop)
    ended, _ = await asyncio.wait(adding, timeout=_PATIENCE)
    notes += [f"a server of the editor is left out: {error}" for error in map(_find_error, ended) if error]


def _find_error(task: asyncio.Task[Any]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def serve_editor(agent: EditorAgent, files: StandardFiles) -> None:
    """Answer an editor until it closes standard input.

    Args:
        agent: The agent.
        files: Standard input and output, which nothing else uses.
    """
    real, shortened = (sys.stdin, sys.stdout), OneLine()
    with os.fdopen(files.input, "r") as given, os.fdopen(files.output, "w") as taken:
        # The package takes the files of `sys`.
        sys.stdin, sys.stdout = given, taken
        try:
            reader, writer = await stdio_streams(limit=_MAX_MESSAGE)
            if sys.platform != "win32":  # there the package writes to `sys.stdout` each time
                sys.stdin, sys.stdout = real
            logging.getLogger().addFilter(shortened)
            await acp.run_agent(cast("Agent", agent), EditorTransport(reader, writer))
        finally:
            logging.getLogger().removeFilter(shortened)
            sys.stdin, sys.stdout = real
            with anyio.CancelScope(shield=True):
                await agent.aclose()
