"""An editor: the client of the Agent Client Protocol's own package, with `dial-chat acp` as its child process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
import anyio
import anyio.lowlevel
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    InitializeResponse,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from tests.support.fork_server import FORK_CLIENT, can_fork, start_server
from tests.support.program import LONG, environment


@dataclass
class Editor:
    """What an editor was shown and asked, and how it answers."""

    answer: str = "once"
    """The id of the option that the person chooses; empty to cancel."""
    updates: list[Any] = field(default_factory=list)
    asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(default_factory=list)
    questions: list[tuple[str, Any]] = field(default_factory=list)
    on_ask: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    """Called when the person is asked, before the answer."""
    commands: list[Any] = field(default_factory=list)
    has_commands: anyio.Event = field(default_factory=anyio.Event)
    connection: Any = None
    """The agent, as the package's client calls it."""
    initialized: InitializeResponse | None = None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        assert session_id
        self.updates.append(update)
        if update.session_update == "available_commands_update":
            self.commands += update.available_commands
            self.has_commands.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        assert session_id
        self.asked.append((tool_call, options))
        await self.on_ask()
        if not self.answer:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.questions.append((message, mode))
        return acp.schema.AcceptElicitationResponse(action="accept", content={"age": 7})

    def find(self, kind: str) -> list[Any]:
        """Return the updates of a kind, such as ``agent_message_chunk``."""
        return [update for update in self.updates if update.session_update == kind]

    @property
    def text(self) -> str:
        """The text of the agent."""
        return "".join(update.content.text for update in self.find("agent_message_chunk"))

    async def prompt(self, session_id: str, *blocks: Any) -> Any:
        """Send a prompt, and return the response when the turn has ended."""
        self.updates.clear()
        given = [acp.text_block(block) if isinstance(block, str) else block for block in blocks]
        return await self.connection.prompt(session_id=session_id, prompt=given)


def build_command(words: list[str], variables: dict[str, str]) -> list[str]:
    """Return the command of a Python program, which is a fork where that is possible."""
    if can_fork([sys.executable, *words], variables):
        return [sys.executable, "-S", "-E", str(FORK_CLIENT), start_server(), *words]
    return [sys.executable, *words]


@asynccontextmanager
async def started_editor(folder: Path, *words: str, answer: str = "once", **env: str) -> AsyncIterator[Editor]:
    """Start ``dial-chat acp`` as an editor does: in another folder than that of the session."""
    editor = Editor(answer)
    elsewhere, variables = folder / "home", environment(folder, **env)
    elsewhere.mkdir(exist_ok=True)
    with (folder / "stderr.txt").open("w") as stderr, anyio.fail_after(LONG):
        async with acp.spawn_agent_process(
            editor,  # type: ignore[arg-type]  # it has the methods that these tests need
            *build_command(["-m", "dial_client", "acp", *words], variables),
            env=variables,
            cwd=elsewhere,
            transport_kwargs={"stderr": stderr, "limit": 2**26, "shutdown_timeout": LONG},
            use_unstable_protocol=True,
        ) as (connection, process):
            editor.connection = connection
            can_ask = ElicitationCapabilities(form=ElicitationFormCapabilities())
            editor.initialized = await connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities(elicitation=can_ask)
            )
            yield editor
        assert process.returncode == 0, (folder / "stderr.txt").read_text()
