"""The session of a conversation: the client, the stored conversation, and the turns of this run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from dial_client.cli.chat.conversation_list import (
    EVERYTHING,
    FOLDER,
    HINT,
    Scope,
    build_metadata,
    list_conversations,
    resolve,
    shorten_id,
)
from dial_client.cli.chat.own_commands import OwnCommand
from dial_client.cli.options import Options
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.terminal.banner import MAX_TEXT, shorten_path
from dial_client.cli.terminal.command_screen import CommandScreen
from dial_client.cli.trust.folder_texts import FolderTexts
from dial_client.client.dial_client import DialClient
from dial_client.conversations.compaction import Compaction
from dial_client.conversations.conversation_manager import LEASE, ConversationManager
from dial_client.conversations.history import has_waiting_calls
from dial_client.conversations.turn_input import Continuation
from dial_client.conversations.turn_queue import POLL_INTERVAL
from dial_client.messages.errors import ConfigError, DialError, StoreUnavailable
from dial_client.messages.events import Event, Finished, StatusChanged
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, PendingApproval
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import suggest_name
from dial_client.settings.agent import AGENTS, Agent
from dial_client.settings.config_types import ModelProfile, Settings
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore
from dial_client.tools.background_calls import BackgroundCall
from dial_client.turns.context_report import ContextReport
from dial_client.turns.turn_handle import TurnHandle
from dial_client.turns.turn_keywords import TurnKeywords


async def find_conversation(
    options: Options, store: ConversationStore, screen: CommandScreen, *, is_one_shot: bool
) -> str | None:
    """Return the id of the conversation that the options name; None for a new conversation.

    ``--continue`` takes the latest conversation of this folder; only a single question continues a one-shot.

    Raises:
        ConfigError: There is no conversation to continue, or several match.
        ConversationNotFound: There is no such conversation.
    """
    if options.resume is not None:
        known = await resolve(options.resume, store, screen, is_everywhere=options.all_folders)
        if known is None:
            raise ConfigError("no conversation was chosen", hint=HINT)
    elif options.continue_latest:
        known = await _find_latest(options, store, is_one_shot=is_one_shot)
    else:
        return None
    stored = await store.get(known)
    if stored.running:
        warn("a turn of this conversation is running, or its program was just killed: waiting for it")
    folder = stored.metadata.get(FOLDER, "")
    if folder not in ("", str(Path.cwd())):
        shown = to_one_line(shorten_path(str(folder), str(Path.home())), MAX_TEXT)
        warn(f"this conversation was held in {shown}: it goes on with the model and the servers of this folder")
    return known


async def _find_latest(options: Options, store: ConversationStore, *, is_one_shot: bool) -> str:
    """Return the id of the latest conversation; a line names a later single question of this folder."""
    scope = EVERYTHING if options.all_folders else Scope.of_folder(has_one_shots=is_one_shot)
    latest = next(iter(await list_conversations(store, scope, 1)), None)
    skipped = None
    if scope.folder is not None and not is_one_shot:
        skipped = next(iter(await list_conversations(store, Scope.of_folder(has_one_shots=True), 1)), None)
    way_on = "" if skipped is None else f"--resume {shorten_id(skipped.id)} continues your latest single question"
    if latest is None:
        where = " of this folder" if await store.list(1) else ""
        hint = where and (way_on or "--continue --all takes the latest of all folders, --resume ID any")
        raise ConfigError(f"there is no conversation{where} to continue", hint=hint)
    if skipped not in (None, latest):
        warn(way_on)
    return latest.id


# The settings of a conversation that belong to its model.
MODEL_SETTINGS = ("model", "temperature")
# The share of the context window at which a conversation is compacted before the next question.
COMPACT_AT = 0.8


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command, which tells the conversation loop what to do next."""

    message: str | Message | Continuation | None = None
    """The question to send to the model, or the request to go on, if there is one."""
    draft: str | None = None
    """The text to put into the input line, if there is one."""
    quit: bool = False
    """Whether the user wants to leave."""


_WITHOUT_STORE = "--no-save answers without storing the conversation"
# The keys of the limits in servers.json.
_LIMITS = {
    StopReason.MAX_DEPTH: "maxDepth",
    StopReason.CONSECUTIVE_ERRORS: "maxConsecutiveErrors",
    StopReason.REPEATED_CALLS: "maxRepeats",
    StopReason.TIMEOUT: "timeout",
    StopReason.TOKEN_BUDGET: "maxTokensTotal",
    StopReason.COST_BUDGET: "maxCostUsd",
}


def describe_stop(turn: Turn, way_on: str, way_to_raise: str = "") -> Iterator[str]:
    """Yield a line that says what ended a turn before its answer, and how to go on; nothing if it was the user.

    Args:
        turn: The turn.
        way_on: How to get the rest; empty if there is no way.
        way_to_raise: How to raise a limit; empty to leave it out.
    """
    reason, ways = turn.stop_reason, [way_on]
    if (key := _LIMITS.get(reason)) is not None:
        cause = f"{reason.sentence} (limits.{key})"
        ways.append(way_to_raise)
    elif reason in (StopReason.TRUNCATED, StopReason.REFUSED):
        cause = reason.sentence
        ways = ways if reason is StopReason.TRUNCATED else []
    else:
        return
    yield "; ".join(filter(None, (f"stopped: {cause}", ", and ".join(filter(None, ways)))))


def _build_keywords(agent: Agent, *, has_model: bool) -> TurnKeywords:
    """Return the keywords of the turns of a conversation with an agent.

    Args:
        agent: The agent.
        has_model: Whether the user has named a model, which precedes that of the agent.
    """
    patterns = ("*",) if agent.tools is None else tuple(agent.tools)
    # As in its own turns: it calls the agents that it names, and not itself.
    has_agents = any(pattern.startswith(f"{AGENTS}/") for pattern in patterns)
    left_out = f"!{AGENTS}/{agent.name if has_agents else '*'}"
    model = None if has_model else agent.model
    return {"system": agent.system or None, "tools": (left_out, *patterns), "model": model}


@dataclass
class ChatSession:
    """The conversation at the terminal."""

    dial: DialClient
    """The client that answers the questions."""
    manager: ConversationManager
    """The manager that stores the conversations."""
    options: Options
    settings: Settings
    """The configuration in use."""
    screen: CommandScreen
    """The screen where commands print and ask."""
    conversation_id: str | None = None
    """The id of a stored conversation; None to create one with the first question."""
    own_commands: Mapping[str, OwnCommand] = field(default_factory=dict)
    """The user's own commands, by their names."""
    turn: TurnHandle | None = None
    """The running turn, or the latest one."""
    turns: list[Turn] = field(default_factory=list)
    """The turns of this run, the latest last."""
    compactions: list[Compaction] = field(default_factory=list)
    """The summaries that were written in this run."""
    add_usage: Callable[[Usage, float | None], object] = lambda *_: None
    """Adds the usage of a summary: its tokens, and its cost in US dollars if known."""
    title: str = ""
    """The title of a new conversation; empty for the first words of its first question."""
    is_one_shot: bool = False
    """Whether the session asks a single question of the command line."""
    _described: tuple[str, str] | None = None
    """The conversation, and the model, whose metadata were stored in this run."""
    texts: FolderTexts = field(default_factory=FolderTexts)
    """The instructions and commands of files that are in use."""
    use_texts: Callable[[FolderTexts], object] = lambda _: None
    """Lets the model follow other instructions, and offers other commands, from the next question on."""
    offered: dict[str, ModelProfile] = field(default_factory=dict)
    """Profiles of models that endpoints listed in this run; the configuration does not have them."""

    _keywords: TurnKeywords = field(default_factory=TurnKeywords)
    """The keywords of each turn: those of the agent of ``--agent``."""

    def use_agent(self, agents: Sequence[Agent]) -> None:
        """Let the agent of ``--agent`` answer; does nothing without this option.

        Raises:
            ConfigError: There is no such agent.
        """
        name = self.options.agent
        if name is None:
            return
        agent = next((agent for agent in agents if agent.name == name), None)
        if agent is None:
            hint = suggest_name(name, [agent.name for agent in agents])
            raise ConfigError(f"there is no agent {to_one_line(name, 80)!r}", hint=hint)
        self._keywords = _build_keywords(agent, has_model=self.options.model is not None)

    def print(self, text: str) -> None:
        """Print lines; text of models and servers in them must be escaped already."""
        self.screen.print_prose(text)

    def list_background_calls(self) -> tuple[BackgroundCall[Any], ...]:
        """Return the calls of the conversation that are in the background."""
        return () if self.conversation_id is None else self.manager.list_background_calls(self.conversation_id)

    def describe_left_calls(self) -> tuple[str, ...]:
        """Return a line for each call in the background that the program leaves before the model has its result."""
        return tuple(
            f"goes on at its server: {call.name}; the next turn has its result"
            if call.has_stored_task and not self.options.no_save
            else f"stopped with the program: {call.name}, which was still running in the background"
            for call in self.list_background_calls()
            if call.is_running
        )

    def require_id(self) -> str:
        """Return the id of the conversation.

        Raises:
            ConfigError: The conversation has no question yet.
        """
        if self.conversation_id is None:
            raise ConfigError("there is no question yet", hint="the conversation begins with your first question")
        return self.conversation_id

    async def ask(
        self, question: str | Message | Continuation, *, output_type: Any = None
    ) -> AsyncGenerator[Event, None]:
        """Ask a question in the conversation, or let the model go on, and yield the events of its turn.

        If the conversation fills `COMPACT_AT` of the context window or more, it is compacted first.

        Raises:
            Interrupted: The user pressed Ctrl-C before the turn began, while the conversation was compacted, or while
                another program answered in it.
            DialError: `ConversationManager.stream_chat` failed.
        """
        if self.conversation_id is None:
            # Create a conversation only with its first question, so that no empty conversation is stored.
            metadata = build_metadata({}, self.dial.model.name, is_one_shot=self.is_one_shot)
            self.conversation_id = (await self.manager.create(self.title, metadata=metadata)).id
            self._described = self.conversation_id, self.dial.model.name
        else:
            await self._update_metadata(self.conversation_id)
            if (await self.manager.store.get(self.conversation_id)).running:
                yield StatusChanged("Waiting for another program, which answers in this conversation…")
            if await self.manager.measure(self.conversation_id) >= COMPACT_AT:
                yield StatusChanged("Summarizing the older part of the conversation…")
                await self._compact_first()
        # No turn follows a single question that could have the results of its calls in the background.
        keywords: TurnKeywords = {**self._keywords, "wait_for_background": self.is_one_shot}
        stream = self.manager.stream_chat(
            self.conversation_id,
            question,
            stream=not self.options.no_stream,
            on_started=self._watch,
            output_type=output_type,
            **keywords,
        )
        async with aclosing(self._note_turns(stream)) as events:
            # The turn begins when no other program answers in the conversation: until then, Ctrl-C ends the waiting.
            with process_runner.interrupts.scope() as scope:
                first = await anext(events)
            if scope.cancelled_caught:
                raise process_runner.Interrupted("interrupted: the question was not sent")
            yield first
            async for event in events:
                yield event

    async def measure_context(self) -> ContextReport:
        """Return what fills the context window when the conversation goes on. Raises as the manager's method."""
        if self.conversation_id is None:
            return self.dial.measure_context(())
        return await self.manager.measure_context(self.conversation_id)

    async def _update_metadata(self, conversation_id: str) -> None:
        """Store in which folder and with which model the conversation goes on."""
        model = self.dial.model.name
        if self._described == (conversation_id, model):
            return
        stored = (await self.manager.store.get(conversation_id)).metadata
        changes = build_metadata(stored, model, is_one_shot=self.is_one_shot)
        if any(stored.get(name) != value for name, value in changes.items()):
            await self.manager.update(conversation_id, metadata_changes=changes)
        self._described = conversation_id, model

    async def find_waiting(self) -> tuple[PendingApproval, ...]:
        """Return the calls of the conversation that wait for approval, once its last turn runs in no other program.

        A program that was just killed seems to run until its lease expires. This waits for that only if a call waits:
        the prompt must not wait for another program's turn.
        """
        store, id_ = self.manager.store, self.require_id()
        stored = await store.get(id_)
        with anyio.move_on_after(LEASE + 1):
            while stored.running and has_waiting_calls(stored):
                await anyio.sleep(POLL_INTERVAL)
                stored = await store.get(id_)
        return () if stored.running else (await self.manager.get(id_)).pending_approvals

    async def resume(self) -> AsyncGenerator[Event, None]:
        """Resume the interrupted turn, whose calls wait for approval, and yield its events. Raises as `ask`."""
        turn = await self.manager.resume(self.require_id(), stream=not self.options.no_stream, **self._keywords)
        if turn is not None:  # None if another program has resumed it
            self._watch(turn)
            async with aclosing(self._note_turns(turn.events())) as events:
                async for event in events:
                    yield event

    def _watch(self, turn: TurnHandle) -> None:
        self.turn = turn
        process_runner.interrupts.watch(turn)

    async def _note_turns(self, stream: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self.turns.append(event.turn)
                yield event

    async def compact(self) -> Compaction | None:
        """Compact the conversation.

        Raises:
            Interrupted: The user pressed Ctrl-C.
            DialError: `ConversationManager.compact` failed.
        """
        compaction: Compaction | None = None
        with process_runner.interrupts.scope() as scope:
            compaction = await self.manager.compact(self.require_id())
        if scope.cancelled_caught:
            raise process_runner.Interrupted("interrupted: nothing was summarized")
        if compaction is not None:
            self.compactions.append(compaction)
            self.add_usage(compaction.usage, compaction.cost_usd)
        return compaction

    async def _compact_first(self) -> None:
        """Compact the conversation before a question; the question is asked even if that is not possible."""
        try:
            compaction = await self.compact()
        except process_runner.Interrupted:
            raise
        except DialError as error:
            self.print(
                f"The conversation is nearly as long as this model can take; not summarized: {sanitize(str(error))}"
            )
            return
        if compaction is not None:
            self.print(f"The conversation was nearly as long as this model can take: {compaction.note}.")
            self.print("(/compact undo restores them)")


def _find_chosen(options: Options) -> Iterator[str]:
    """Yield the names of settings that the command line sets; they override those of a stored conversation."""
    if options.model is not None:
        yield from MODEL_SETTINGS
    if options.tool_format is not None:
        yield "tool_format"
    if options.system is not None:
        yield "system"
    if options.max_depth is not None or options.timeout is not None:
        yield "limits"


@asynccontextmanager
async def open_session(
    options: Options,
    settings: Settings,
    dial: DialClient,
    screen: CommandScreen,
    *,
    title: str = "",
    is_one_shot: bool = False,
) -> AsyncGenerator[ChatSession, None]:
    """Open the conversation that the options name: a new or a stored conversation.

    Args:
        options: The options of the command line.
        settings: The configuration in use.
        dial: The client that answers the questions.
        screen: The screen where commands print and ask.
        title: The title of a new conversation; empty for the first words of its first question.
        is_one_shot: Whether the session asks a single question of the command line.

    Raises:
        ConfigError: There is no conversation to continue, or no place to store one.
        ConversationNotFound: There is no conversation with the id of ``--resume``.
    """
    if options.no_save and (options.continue_latest or options.resume is not None):
        raise ConfigError("--no-save cannot be combined with --continue or --resume")
    if options.all_folders and not options.continue_latest and options.resume is None:
        raise ConfigError("--all belongs to --continue or --resume", hint="dial-chat --continue --all")
    async with aclosing(MemoryStore() if options.no_save else SQLStore.sqlite()) as store:
        if isinstance(store, SQLStore):
            try:
                await store.open()  # now, while the servers are starting
            except ConfigError as error:
                raise replace(error, hint=error.hint or _WITHOUT_STORE) from error
            except StoreUnavailable as error:
                raise StoreUnavailable(f"{error}; {_WITHOUT_STORE}") from error
        manager = ConversationManager(dial, store, locked_settings=tuple(_find_chosen(options)))
        known = await find_conversation(options, store, screen, is_one_shot=is_one_shot)
        yield ChatSession(dial, manager, options, settings, screen, known, title=title, is_one_shot=is_one_shot)
