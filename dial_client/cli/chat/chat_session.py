"""The session of a conversation: the client, the stored conversation, and the turns of this run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio

from dial_client.cli import process_runner, tty
from dial_client.cli.command_screen import MAX_FOUND, Choice, CommandScreen, pick
from dial_client.cli.load_settings import warn
from dial_client.cli.options import Options
from dial_client.client.dial_client import DialClient
from dial_client.conversations.compaction import Compaction
from dial_client.conversations.conversation_manager import LEASE, ConversationManager
from dial_client.conversations.turn_input import Continuation
from dial_client.conversations.turn_queue import POLL_INTERVAL
from dial_client.messages.errors import ConfigError, ConversationNotFound, DialError
from dial_client.messages.events import Event, Finished, StatusChanged
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, PendingApproval
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.settings.config_types import Settings
from dial_client.stores.conversation_store import ConversationSummary, MemoryStore
from dial_client.stores.sql_store import SQLStore
from dial_client.turns.context_report import ContextReport
from dial_client.turns.turn_handle import TurnHandle

_PAGE = 200
_HINT = "`dial-chat conversations` lists them"


async def find_conversation(options: Options, manager: ConversationManager, screen: CommandScreen) -> str | None:
    """Return the id of the conversation that the options name; None for a new conversation.

    Raises:
        ConfigError: There is no conversation to continue, or several match.
        ConversationNotFound: There is no such conversation.
    """
    if options.resume is not None:
        known = await resolve(options.resume, manager, screen)
        if known is None:
            raise ConfigError("no conversation was chosen", hint=_HINT)
    elif options.continue_latest:
        latest = next(iter(await manager.list(limit=1)), None)
        if latest is None:
            raise ConfigError("there is no conversation to continue")
        known = latest.id
    else:
        return None
    if (await manager.get(known)).running:
        warn("a turn of this conversation is running, or its program was just killed: waiting for it")
    return known


async def resolve(text: str, manager: ConversationManager, screen: CommandScreen) -> str | None:
    """Return the id of the conversation that a text names by its id, the beginning of its id, or words in it.

    If several conversations match, or the text is empty, the user chooses; None if they choose none.

    Raises:
        ConfigError: Several conversations match, and there is no terminal to ask at.
        ConversationNotFound: No conversation matches.
    """
    text = text.strip()
    if text:
        found = [summary.id for summary in await _list_all(manager) if summary.id.startswith(text.lower())]
        if text in found:
            return text
        found = found or [summary.id for summary in await manager.list(2, search=text)]
        if not found:
            raise ConversationNotFound(text, f"there is no conversation {to_one_line(text, 60)!r} ({_HINT})")
        if len(found) == 1:
            return found[0]
    if not tty.can_ask_user():
        problem = f"{to_one_line(text, 60)!r} matches several conversations" if text else "no conversation is named"
        raise ConfigError(problem, hint=f"give more of its id; {_HINT}")
    search = partial(_search, manager)
    return await pick(screen, "Conversation", search, nothing="No conversation is stored yet.", words=text)


async def _list_all(manager: ConversationManager) -> Sequence[ConversationSummary]:
    page = await manager.list(_PAGE)
    found = list(page)
    while page.cursor is not None:
        page = await manager.list(_PAGE, cursor=page.cursor)
        found += page
    return found


async def _search(manager: ConversationManager, words: str) -> list[Choice]:
    found: list[ConversationSummary] = list(await manager.list(MAX_FOUND, search=words))
    if words and not found:
        found = [summary for summary in await _list_all(manager) if summary.id.startswith(words.lower())]
    return [Choice(summary.id, describe(summary)) for summary in found]


def describe(summary: ConversationSummary) -> str:
    """Return a conversation in one line: the beginning of its id, its time, its title."""
    title = to_one_line(summary.title, 60) or "(no title)"
    return f"{summary.id[:8]}  {summary.updated_at.astimezone():%Y-%m-%d %H:%M}  {title}"


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


# The keys of the limits in servers.json.
_LIMITS = {
    StopReason.MAX_DEPTH: "maxDepth",
    StopReason.CONSECUTIVE_ERRORS: "maxConsecutiveErrors",
    StopReason.REPEATED_CALLS: "maxRepeats",
    StopReason.TIMEOUT: "timeout",
    StopReason.TOKEN_BUDGET: "maxTokensTotal",
}


def describe_limit(turn: Turn, way_on: str) -> Iterator[str]:
    """Yield a line that says which limit ended a turn, and how to go on; nothing if no limit did."""
    if (key := _LIMITS.get(turn.stop_reason)) is not None:
        yield f"stopped: {turn.stop_reason.sentence} (limits.{key}); {way_on}"


class Interrupted(DialError):
    """The user pressed Ctrl-C."""


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
    turn: TurnHandle | None = None
    """The running turn, or the latest one."""
    turns: list[Turn] = field(default_factory=list)
    """The turns of this run, the latest last."""
    compactions: list[Compaction] = field(default_factory=list)
    """The summaries that were written in this run."""
    add_usage: Callable[[Usage, float | None], object] = lambda *_: None
    """Adds the usage of a summary: its tokens, and its cost in US dollars if known."""

    def print(self, text: str) -> None:
        """Print lines; text of models and servers in them must be escaped already."""
        self.screen.print_prose(text)

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
            Interrupted: The user pressed Ctrl-C while the conversation was compacted.
            DialError: `ConversationManager.stream_chat` failed.
        """
        if self.conversation_id is None:
            # Create a conversation only with its first question, so that no empty conversation is stored.
            self.conversation_id = (await self.manager.create()).id
        elif await self.manager.measure(self.conversation_id) >= COMPACT_AT:
            yield StatusChanged("Summarizing the older part of the conversation…")
            await self._compact_first()
        stream = self.manager.stream_chat(
            self.conversation_id,
            question,
            stream=not self.options.no_stream,
            on_started=self._watch,
            output_type=output_type,
        )
        async with aclosing(self._note_turns(stream)) as events:
            async for event in events:
                yield event

    async def measure_context(self) -> ContextReport:
        """Return what fills the context window when the conversation goes on. Raises as the manager's method."""
        if self.conversation_id is None:
            return self.dial.measure_context(())
        return await self.manager.measure_context(self.conversation_id)

    async def find_waiting(self) -> tuple[PendingApproval, ...]:
        """Return the calls of the conversation that wait for approval, once its last turn runs in no other program.

        A program that was just killed seems to run until its lease expires. This waits for that only if a call waits:
        the prompt must not wait for another program's turn.
        """
        store, id_ = self.manager.store, self.require_id()
        stored = await store.get(id_)
        with anyio.move_on_after(LEASE + 1):
            while stored.running and any(message.pending for message in stored.unfinished):
                await anyio.sleep(POLL_INTERVAL)
                stored = await store.get(id_)
        return () if stored.running else (await self.manager.get(id_)).pending_approvals

    async def resume(self) -> AsyncGenerator[Event, None]:
        """Resume the interrupted turn, whose calls wait for approval, and yield its events. Raises as `ask`."""
        turn = await self.manager.resume(self.require_id(), stream=not self.options.no_stream)
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
            raise Interrupted("interrupted: nothing was summarized")
        if compaction is not None:
            self.compactions.append(compaction)
            self.add_usage(compaction.usage, compaction.cost_usd)
        return compaction

    async def _compact_first(self) -> None:
        """Compact the conversation before a question; the question is asked even if that is not possible."""
        try:
            compaction = await self.compact()
        except Interrupted:
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
    options: Options, settings: Settings, dial: DialClient, screen: CommandScreen
) -> AsyncGenerator[ChatSession, None]:
    """Open the conversation that the options name: a new or a stored conversation.

    Raises:
        ConfigError: There is no conversation to continue, or no place to store one.
        ConversationNotFound: There is no conversation with the id of ``--resume``.
    """
    if options.no_save and (options.continue_latest or options.resume is not None):
        raise ConfigError("--no-save cannot be combined with --continue or --resume")
    async with aclosing(MemoryStore() if options.no_save else SQLStore.sqlite()) as store:
        if isinstance(store, SQLStore):
            try:
                await store.open()  # now, while the servers are starting
            except ConfigError as error:
                raise replace(error, hint=error.hint or "--no-save answers without storing the conversation") from error
        manager = ConversationManager(dial, store, locked_settings=tuple(_find_chosen(options)))
        known = await find_conversation(options, manager, screen)
        yield ChatSession(dial, manager, options, settings, screen, known)
