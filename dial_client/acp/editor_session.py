"""A session of an editor: a conversation, with a client of its own, whose turns are shown as they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from acp.helpers import (
    ContentBlock,
    SessionUpdate,
    image_block,
    text_block,
    tool_content,
    update_agent_message,
    update_agent_message_text,
    update_agent_thought_text,
    update_available_commands,
    update_tool_call,
    update_user_message,
)
from acp.interfaces import Client
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    PromptResponse,
    SessionInfoUpdate,
    StopReason,
    UnstructuredCommandInput,
    Usage,
    UsageUpdate,
)

from dial_client.acp.prompt_content import read_prompt, to_blocks
from dial_client.acp.tool_call_updates import CallIds, show_call, show_result
from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.messages import limits
from dial_client.messages.events import (
    Event,
    Finished,
    MessageCompleted,
    ReasoningDelta,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from dial_client.messages.message import ImagePart, Message, Role, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import sanitize
from dial_client.settings.config_types import ServerSettings
from dial_client.turns.turn_handle import TurnHandle

_STOP_REASONS: Mapping[limits.StopReason, StopReason] = {
    limits.StopReason.CANCELLED: "cancelled",
    limits.StopReason.REFUSED: "refusal",
    limits.StopReason.TRUNCATED: "max_tokens",
    limits.StopReason.TOKEN_BUDGET: "max_tokens",
    limits.StopReason.COST_BUDGET: "max_tokens",
}


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """A command of the user, which an editor offers after a slash."""

    name: str
    """The name without the slash."""
    description: str
    arguments: str
    """What follows the name, for the user; empty if nothing does."""
    expand: Any
    """Returns the text for the model, given the arguments."""


@dataclass
class EditorSession:
    """One session."""

    id: str
    """The id of the conversation."""
    client: Client
    """The connection to the editor."""
    dial: DialClient
    manager: ConversationManager
    servers: Mapping[str, Any]
    """The entries of the servers, by name."""
    calls: CallIds
    """The calls that the editor shows."""
    commands: Mapping[str, SessionCommand] = field(default_factory=dict)
    """The commands, by name."""
    notes: list[str] = field(default_factory=list)
    """What the user is told with the first answer."""
    _turn: TurnHandle | None = None
    _is_cancelled: bool = False

    async def announce_commands(self) -> None:
        """Tell the editor which commands there are."""
        if not self.commands:
            return
        offered = [
            AvailableCommand(
                name=command.name,
                description=command.description,
                input=AvailableCommandInput(UnstructuredCommandInput(hint=command.arguments))
                if command.arguments
                else None,
            )
            for command in self.commands.values()
        ]
        await self._send(update_available_commands(offered))

    async def replay(self) -> None:
        """Send the messages of the conversation, as an editor expects of a session that it loads."""
        calls: dict[str, ToolCallRequest] = {}
        for message in (await self.manager.get(self.id)).messages:
            for update in self._to_updates(message, calls):
                await self._send(update)

    def _to_updates(self, message: Message, calls: dict[str, ToolCallRequest]) -> Iterator[SessionUpdate]:
        match message.role:
            case Role.USER:
                yield from map(update_user_message, to_blocks(message))
            case Role.ASSISTANT:
                yield from map(update_agent_message, to_blocks(message))
                calls.update({call.id: call for call in message.tool_calls})
            case Role.TOOL if (call := calls.pop(message.tool_call_id or "", None)) is not None:
                spec = self._find_spec(call.name)
                server = spec.server if spec is not None else ""
                id_ = self.calls.begin(call.id)
                self.calls.end(call.id)
                yield show_call(call, server, spec, self._find_settings(server)).start(id_)
                yield show_result(id_, ToolCallResult(id_, success=True, content=message.content))
            case _:
                pass

    async def prompt(self, blocks: Sequence[ContentBlock]) -> PromptResponse:
        """Run a turn, and return why it ended.

        Raises:
            DialError: The conversation cannot go on, or the model cannot answer.
            RequestError: The prompt cannot be read.
        """
        self._is_cancelled = False
        content = read_prompt(blocks)
        if isinstance(content, str):
            content = self._expand(content)
        attached = await self.dial.attach(content)
        for note in (*self.notes, *attached.notes):
            await self._send(update_agent_thought_text(f"{sanitize(note)}\n"))
        self.notes.clear()
        is_first = not (await self.manager.get(self.id)).messages
        self._turn = await self.manager.start(self.id, attached.message)
        if self._is_cancelled:  # while the turn was starting
            self._turn.cancel()
        async with aclosing(self._turn.log.events()) as events:
            async for _, event in events:
                for update in self._to_update(event):
                    await self._send(update)
                if isinstance(event, ToolCallStarted):
                    self.calls.note_shown(event.call.id)
        turn = await self._turn.result()
        await self._finish(turn, is_first=is_first)
        reason = _STOP_REASONS.get(turn.stop_reason, "max_turn_requests" if turn.stop_reason.is_limit else "end_turn")
        return PromptResponse(stop_reason=reason, usage=_to_usage(turn))

    def cancel(self) -> None:
        """Cancel the running turn."""
        self._is_cancelled = True
        if self._turn is not None:
            self._turn.cancel()

    def _expand(self, text: str) -> str:
        name, _, arguments = text.strip().partition(" ")
        command = self.commands.get(name[1:]) if name.startswith("/") else None
        return text if command is None else str(command.expand(arguments.strip()))

    async def _finish(self, turn: Turn, *, is_first: bool) -> None:
        for note in turn.notes:
            await self._send(update_agent_thought_text(f"\n{sanitize(note)}"))
        window = self.dial.model.window_tokens
        if window and turn.request_usages:
            last = turn.request_usages[-1]
            used = last.input_tokens + last.output_tokens
            await self._send(UsageUpdate(session_update="usage_update", used=used, size=window))
        if is_first and (title := (await self.manager.get(self.id)).title):
            await self._send(SessionInfoUpdate(session_update="session_info_update", title=title))

    def _to_update(self, event: Event) -> Iterator[Any]:
        match event:
            case TextDelta(text):
                yield update_agent_message_text(text)
            case ReasoningDelta(text):
                yield update_agent_thought_text(text)
            case ToolCallStarted(call, server):
                spec = None if event.by_endpoint else self._find_spec(call.name)
                yield show_call(call, server, spec, self._find_settings(server)).start(self.calls.begin(call.id))
            case ToolCallProgress(id_, _, _, message) if message:
                content = [tool_content(text_block(sanitize(message)))]
                yield update_tool_call(self.calls.find(id_), status="in_progress", content=content)
            case ToolCallFinished(result):
                yield show_result(self.calls.end(result.tool_call_id), result)
            case MessageCompleted(message) if message.role is Role.ASSISTANT and not isinstance(message.content, str):
                images = [part for part in message.content if isinstance(part, ImagePart)]
                yield from (update_agent_message(image_block(image.data, image.mime_type)) for image in images)
            case Finished():
                return

    def _find_spec(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.dial.tools if tool.name == name), None)

    def _find_settings(self, server: str) -> ServerSettings | None:
        entry = self.servers.get(server)
        return entry if isinstance(entry, ServerSettings) else None

    async def _send(self, update: Any) -> None:
        await self.client.session_update(self.id, update)


def _to_usage(turn: Turn) -> Usage:
    usage = turn.usage
    return Usage(
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        thought_tokens=usage.reasoning_tokens,
        cached_read_tokens=usage.cached_tokens,
    )
