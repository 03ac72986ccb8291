"""A session of an editor: a conversation, with a client of its own, whose turns are shown as they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
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
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
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
from dial_client.messages.errors import DialError
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
from dial_client.messages.late_result import LateResult, read_late_result
from dial_client.messages.message import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    extract_text,
)
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.settings.config_types import ServerSettings
from dial_client.sinks.turn_frames import unwrap
from dial_client.tools.skills.skill_lists import SkillSummary
from dial_client.turns.turn_handle import TurnHandle

# The option of a session that is its model.
_MODEL = "model"
# The most characters of a late result that are shown.
_MAX_LATE = 1_000
ConfigOption = SessionConfigOptionSelect | SessionConfigOptionBoolean
# Returns the message of a prompt of a server, given ``/server:prompt`` and its arguments. Raises `DialError`.
RequestPrompt = Callable[[str], Awaitable[Message]]

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
    request_prompt: RequestPrompt | None = None
    """Returns the message of a prompt of a server; None if prompts are no commands."""
    default_model: str = ""
    models: Sequence[str] = ()
    """The names of the models that the person can choose."""
    # The names of the servers' prompts as commands, without the slash.
    _prompts: frozenset[str] = frozenset()
    # The names of the skills, by the names of their commands.
    _skills: Mapping[str, str] = field(default_factory=dict)
    _turn: TurnHandle | None = None
    _is_cancelled: bool = False

    async def announce_commands(self) -> None:
        """Tell the editor which commands there are: those of the user, and then those of servers and skills, too."""
        own = [_to_available(*(each.name, each.description, each.arguments)) for each in self.commands.values()]
        if own:
            await self._send(update_available_commands(own))
        if self.request_prompt is None:
            return
        with suppress(DialError):  # a server that has failed has no prompts
            await self.dial.ready()
        prompts = {to_one_line(f"{each.server}:{each.name}", 200): each for each in await self.dial.prompts.list()}
        self._prompts = frozenset(prompts)
        listed = [
            _to_available(
                name,
                to_one_line(prompt.description or prompt.title or prompt.name, 500),
                " ".join(f"{given.name}={'' if given.required else '(optional)'}" for given in prompt.arguments),
            )
            for name, prompt in prompts.items()
        ]
        listed += [
            _to_available(name, to_one_line(skill.description, 500), "TEXT")
            for name, skill in (await self._list_skills()).items()
            if not skill.is_withheld and name not in self.commands and name not in prompts
        ]
        if listed:
            await self._send(update_available_commands([*own, *listed]))

    async def _list_skills(self) -> Mapping[str, SkillSummary]:
        """Return the skills by the names of their commands: one of a server is named as a prompt of the server is."""
        skills = {each.name.replace("/", ":", 1): each for each in await self.dial.skills.list()}
        self._skills = {name: skill.name for name, skill in skills.items()}
        return skills

    async def describe_options(self) -> list[ConfigOption] | None:
        """Return what the person can choose in this session: the model, if there are several."""
        names = list(dict.fromkeys(filter(None, (self.default_model, *self.models))))
        if len(names) < 2:
            return None
        chosen = ((await self.manager.view(self.id)).settings or {}).get("model") or self.default_model
        options = [SessionConfigSelectOption(value=name, name=name) for name in dict.fromkeys((*names, chosen))]
        select = SessionConfigOptionSelect(
            id=_MODEL, name="Model", category="model", type="select", current_value=chosen, options=options
        )
        return [select]

    async def set_option(self, id_: str, value: object) -> list[ConfigOption] | None:
        """Choose the model from the next turn on, and return the options; None if there is no such option or value.

        Raises:
            DialError: The model is unknown, or the store failed.
        """
        if id_ != _MODEL or value not in (self.default_model, *self.models):
            return None
        settings = dict((await self.manager.view(self.id)).settings or {})
        settings.pop("model", None)
        await self.manager.update_settings(
            self.id, settings | ({} if value == self.default_model else {"model": value})
        )
        return await self.describe_options()

    async def replay(self) -> None:
        """Send the messages of the conversation, as an editor expects of a session that it loads."""
        calls: dict[str, ToolCallRequest] = {}
        for message in (await self.manager.get(self.id)).messages:
            for update in self._to_updates(message, calls):
                await self._send(update)

    def _to_updates(self, message: Message, calls: dict[str, ToolCallRequest]) -> Iterator[SessionUpdate]:
        match message.role:
            case Role.USER if (late := read_late_result(message)) is not None:
                yield _show_late(late)
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
        message, attached_notes = await self._read_message(blocks)
        for note in (*self.notes, *attached_notes):
            await self._send(update_agent_thought_text(f"{sanitize(note)}\n"))
        self.notes.clear()
        is_first = not (await self.manager.get(self.id)).messages
        self._turn = await self.manager.start(self.id, message)
        if self._is_cancelled:  # while the turn was starting
            self._turn.cancel()
        async with aclosing(self._turn.log.events()) as events:
            async for _, event in events:
                for update in self._to_update(event):
                    await self._send(update)
                inner, path, _ = unwrap(event)
                if isinstance(inner, ToolCallStarted):
                    self.calls.note_shown(*path, inner.call.id)
        turn = await self._turn.result()
        await self._finish(turn, is_first=is_first)
        reason = _STOP_REASONS.get(turn.stop_reason, "max_turn_requests" if turn.stop_reason.is_limit else "end_turn")
        return PromptResponse(stop_reason=reason, usage=_to_usage(turn))

    async def _read_message(self, blocks: Sequence[ContentBlock]) -> tuple[Message, Sequence[str]]:
        """Return the message of a prompt, with notes on what could not be attached."""
        content = read_prompt(blocks)
        first, *attachments = (TextPart(content),) if isinstance(content, str) else content
        if isinstance(first, TextPart) and not first.foreign:
            begun = await self._read_command(first.text)
            if isinstance(begun, Message):
                own = (TextPart(begun.content),) if isinstance(begun.content, str) else begun.content
                return replace(begun, content=(*own, *attachments)) if attachments else begun, ()
            content = (TextPart(begun), *attachments) if attachments else begun
        attached = await self.dial.attach(content)
        return attached.message, attached.notes

    async def _read_command(self, text: str) -> str | Message:
        """Return what a command at the beginning of a text stands for; without one the text itself.

        Raises:
            DialError: The server of a prompt or a skill did not answer, or the skill is withheld.
        """
        line = text.strip()
        name, _, arguments = line[1:].partition(" ")
        if not line.startswith("/"):
            return text
        if self.request_prompt is not None and name in self._prompts:
            return await self.request_prompt(line)
        if (command := self.commands.get(name)) is not None:
            return str(command.expand(arguments.strip()))
        if name in self._skills:
            return await self.dial.skills.build_message(self._skills[name], arguments.strip())
        return text

    def cancel(self) -> None:
        """Cancel the running turn."""
        self._is_cancelled = True
        if self._turn is not None:
            self._turn.cancel()

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
        inner, path, agent = unwrap(event)
        match inner:
            case TextDelta(text):
                yield update_agent_message_text(text)
            case ReasoningDelta(text):
                yield update_agent_thought_text(text)
            case ToolCallStarted(call, server):
                spec = None if inner.by_endpoint else self._find_spec(call.name)
                shown = show_call(call, server, spec, self._find_settings(server), agent)
                yield shown.start(self.calls.begin(*path, call.id))
            case ToolCallProgress(id_, _, _, message) if message:
                content = [tool_content(text_block(sanitize(message)))]
                yield update_tool_call(self.calls.find(id_), status="in_progress", content=content)
            case ToolCallFinished(result):
                yield show_result(self.calls.end(*path, result.tool_call_id), result)
            case MessageCompleted(message) if (late := read_late_result(message)) is not None:
                yield _show_late(late)
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


def _to_available(name: str, description: str, arguments: str) -> AvailableCommand:
    given = AvailableCommandInput(UnstructuredCommandInput(hint=arguments)) if arguments else None
    return AvailableCommand(name=name, description=description, input=given)


def _show_late(late: LateResult) -> SessionUpdate:
    """Return the result of a call in the background, whose own update has ended long ago."""
    text = to_one_line(extract_text(late.content), _MAX_LATE)
    return update_agent_thought_text(f"{late.name or 'a call'} in the background: {sanitize(text)}\n")


def _to_usage(turn: Turn) -> Usage:
    usage = turn.usage
    return Usage(
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        thought_tokens=usage.reasoning_tokens,
        cached_read_tokens=usage.cached_tokens,
    )
