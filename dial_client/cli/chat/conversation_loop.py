"""The loop of a conversation: read a line, answer it, repeat."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import anyio
from anyio.abc import TaskGroup

from dial_client.cli.approval import elicitation_prompt
from dial_client.cli.approval.terminal_approver import build_approver
from dial_client.cli.chat.chat_session import ChatSession, CommandResult, describe_stop, open_session
from dial_client.cli.chat.conversation_commands import show_last_exchange
from dial_client.cli.chat.conversation_list import shorten_id
from dial_client.cli.chat.conversation_status import ConversationStatus
from dial_client.cli.chat.own_commands import read_own_commands
from dial_client.cli.chat.slash_commands import (
    NOW,
    describe_commands,
    is_command,
    is_information,
    list_command_arguments,
    list_names,
    run_command,
    show_information,
)
from dial_client.cli.chat.startup_report import WaitForServers, select_notes
from dial_client.cli.input.input_references import merge_messages, with_attachments
from dial_client.cli.input.shell_command import ShellCommands
from dial_client.cli.input.tab_completion import build_completer
from dial_client.cli.open_client import open_client, use_instructions
from dial_client.cli.options import Options
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.error_stream import report_error, warn, warn_once
from dial_client.cli.streams.tty import UserInput
from dial_client.cli.terminal.attention import ANSWER
from dial_client.cli.terminal.console import Console
from dial_client.cli.terminal.screen import Screen
from dial_client.cli.trust.folder_texts import FolderTexts
from dial_client.conversations.turn_input import find_typed_text
from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.events import Event, Finished, MessageCompleted, RoundStarted
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message
from dial_client.messages.model import Provider
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.config_types import Settings
from dial_client.sinks.turn_display import MAX_LINE, TurnSink
from dial_client.turns.turn_handle import TurnHandle

# Seconds for which a request is repeated while the model's endpoint limits the rate of requests.
_PATIENCE = 60.0

# The most seconds that a command, or the files of a steering message, may take beside a turn.
_MAX_BESIDE = 20.0


async def run_loop(  # noqa: PLR0913 - all that a conversation needs
    options: Options,
    settings: Settings,
    provider: Provider,
    texts: FolderTexts,
    console: Console,
    sink: TurnSink,
    wait_for_servers: WaitForServers,
    *,
    during_answer: WaitForServers | None = None,
) -> None:
    """Open the client and the conversation, and answer input until the user leaves."""
    callbacks = elicitation_prompt.build_callbacks(options, sink, console)
    console.notify_by(settings.notify or "bell")
    async with (
        open_client(options, settings, provider, build_approver(sink, console, settings.servers), callbacks) as dial,
        open_session(options, settings, dial, console) as chat,
    ):
        chat.use_texts = partial(_use_texts, chat, console)
        chat.use_texts(texts)
        # A person sees the wait, and may interrupt it.
        dial.model.patience = _PATIENCE
        chat.add_usage = sink.usage.add_usage
        if options.continue_latest or options.resume is not None:
            await show_last_exchange(chat)
            console.print("\n" if isinstance(console, Screen) else "")  # before the lines about the servers
        await ConversationLoop(chat, console, sink, during_answer).run(wait_for_servers)
        console.close()


def _use_texts(chat: ChatSession, console: Console, texts: FolderTexts) -> None:
    """Let the model follow the instructions of files, and offer their commands."""
    chat.texts = texts
    chat.own_commands, problems = read_own_commands(texts.commands, list_names())
    for problem in problems:
        warn_once(problem)
    own = {name: command.description for name, command in chat.own_commands.items()}
    console.complete_with(build_completer(chat.dial, {**describe_commands(), **own}, list_command_arguments(chat)))
    use_instructions(chat.dial, texts)
    chat.use_agent(texts.agents)


class ConversationLoop:
    """The conversation loop: reads the user's input, and answers it.

    Args:
        chat: The session of the conversation.
        console: The console that reads the input.
        sink: The sink that shows the turns.
        during_answer: A function to run during each answer; it is cancelled when the answer ends. A screen needs
            none, because it reads Enter already.
    """

    def __init__(
        self, chat: ChatSession, console: Console, sink: TurnSink, during_answer: WaitForServers | None
    ) -> None:
        self._chat, self._console, self._sink, self._during_answer = chat, console, sink, during_answer
        self._shell = ShellCommands(console.suspend)
        self._is_answering = False
        self._will_leave = False
        # The tasks beside the running turn; its end is theirs.
        self._beside: TaskGroup
        # Shows the status line; None without a screen.
        self._status: ConversationStatus | None = None
        # Messages for a turn that ended while their files were read.
        self._late: list[Message] = []
        console.set_interrupt(self._interrupt)
        console.take_at_once = self._take_at_once
        if isinstance(console, Screen):
            console.take_back = self._take_back
        else:
            sink.hold_keyboard = console.hold_keyboard

    async def run(self, wait_for_servers: WaitForServers) -> None:
        """Answer input until the user leaves; meanwhile `wait_for_servers` reports on the start of the servers."""
        async with anyio.create_task_group() as group:
            if isinstance(self._console, Screen):
                self._status = ConversationStatus(self._chat, self._sink.usage, self._console, group)
                group.start_soon(self._status.follow)
                self._console.live.background = self._chat.list_background_calls
            group.start_soon(self._report_on_servers, wait_for_servers)
            if self._chat.conversation_id is not None and await self._chat.find_waiting():
                self._console.print("The last turn was interrupted while a call waits for approval: it continues.")
                await self._answer(self._chat.resume())
            try:
                await self._answer_input()
            finally:  # Ctrl-C, pressed twice, cancels
                self._take_leave()
            group.cancel_scope.cancel()

    async def _answer_input(self) -> None:
        while (user_input := await self._console.read_input()) is not None:
            self._will_leave = False
            self._console.echo(user_input)
            result = await self._run_input(user_input)
            if result.quit:
                break
            if result.draft is not None:
                self._console.edit(result.draft)
            message = result.message
            while message is not None:
                await self._answer(self._chat.ask(message))
                message = self._take_unsent()
            await self._measure()

    def _take_leave(self) -> None:
        """Say what ends with the program, and how the conversation is continued."""
        for note in self._chat.describe_left_calls():
            self._chat.print(note)
        if self._chat.conversation_id is not None and not self._chat.options.no_save:
            self._chat.print(f"dial-chat --resume {shorten_id(self._chat.conversation_id)} continues here.")

    def _take_at_once(self, user_input: UserInput, /, *, steers: bool) -> bool:
        """Start what need not wait for the end of the answer; return False if the input waits in the queue."""
        name, _, text = user_input.text.partition(" ")
        if name.lower() == NOW and text.strip():
            typed = user_input.typed.partition(" ")[2]
            user_input, steers = replace(user_input, text=text.strip(), typed=typed, shown=text.strip()), True
        elif is_information(user_input.text):
            if not isinstance(self._console, Screen):
                return False  # the lines would stand inside the answer
            self._console.echo(user_input)
            self._beside.start_soon(self._inform, user_input.text)
            return True
        turn = self._chat.turn
        if not steers or turn is None or turn.has_ended:
            return False
        if is_command(user_input.shown) or user_input.shown.startswith("!"):
            return False
        self._beside.start_soon(self._steer, turn, user_input)
        return True

    async def _inform(self, line: str) -> None:
        # Shielded, because the turn may end meanwhile.
        with anyio.move_on_after(_MAX_BESIDE, shield=True):
            await show_information(line, self._chat)

    async def _steer(self, turn: TurnHandle, user_input: UserInput) -> None:
        # Files are read first; if the turn ends meanwhile, the message is the next question.
        with anyio.move_on_after(_MAX_BESIDE, shield=True):
            question = replace(user_input, attachments=self._shell.outputs)
            try:
                message = await with_attachments(self._chat.dial, question)
            except ConfigError as error:
                report_error(f"not sent: {error}")
                self._console.edit(user_input.text)
                return
            self._shell.forget_outputs()
            if turn.steer(message):
                self._show_steering()
            else:
                self._late.append(Message.user(message) if isinstance(message, str) else message)

    def _take_back(self) -> str | None:
        turn = self._chat.turn
        if turn is None or not turn.unsent:
            return None
        *kept, last = turn.take_unsent()
        for message in kept:
            turn.steer(message)
        self._show_steering()
        return find_typed_text(last)

    def _show_steering(self) -> None:
        unsent = [] if self._chat.turn is None else [find_typed_text(message) for message in self._chat.turn.unsent]
        if isinstance(self._console, Screen):
            self._console.live.steering = unsent
            self._console.refresh()
        elif unsent:
            self._sink.note(to_one_line(f"with the next results: {unsent[-1]}", MAX_LINE))

    def _take_unsent(self) -> Message | None:
        """Return the steering messages that the ended turn did not get, as the next question; None without any."""
        turn = self._chat.turn
        unsent = (*(() if turn is None else turn.take_unsent()), *self._late)
        self._late.clear()
        self._show_steering()
        if not unsent:
            return None
        for message in unsent:
            text = find_typed_text(message)
            self._console.echo(UserInput(text, text, text))
        return unsent[0] if len(unsent) == 1 else merge_messages(unsent)

    async def _report_on_servers(self, wait_for_servers: WaitForServers) -> None:
        try:
            await wait_for_servers(self._chat.dial)
        except DialError as error:
            report_error(str(error))

    async def _run_input(self, user_input: UserInput) -> CommandResult:
        """Run the input if it is a command; return its result, or the question to send to the model."""
        if user_input.shown.startswith("!"):
            self._console.print_prose(await self._shell.run(user_input.text))
            return CommandResult()
        result = CommandResult(user_input.text or None)
        if is_command(user_input.shown):
            result = await run_command(user_input.text, self._chat)
        if isinstance(result.message, str):
            question = replace(user_input, text=result.message, attachments=self._shell.outputs)
            try:
                result = CommandResult(await with_attachments(self._chat.dial, question))
            except ConfigError as error:
                report_error(f"not sent: {error}")
                return CommandResult(draft=question.text)
            self._shell.forget_outputs()
        return result

    async def _answer(self, stream: AsyncGenerator[Event, None]) -> None:
        """Show the events of a turn, and run what the user asks for meanwhile."""
        async with anyio.create_task_group() as beside:
            self._beside = beside
            if self._during_answer is not None:
                beside.start_soon(self._during_answer, self._chat.dial)
            await self._show_turn(stream)
            beside.cancel_scope.cancel()

    async def _show_turn(self, stream: AsyncGenerator[Event, None]) -> None:
        self._is_answering, is_cancelled = True, False
        self._console.attention.settle()
        self._sink.begin()
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    self._sink.show(event)
                    if isinstance(event, MessageCompleted) and event.message.steers:
                        self._show_steering()
                    if isinstance(event, RoundStarted) and event.depth:
                        await self._measure()
                    if isinstance(event, Finished):
                        turn = event.turn
                        is_cancelled = turn.stop_reason is StopReason.CANCELLED
                        # Each note once in this run; but if a limit ended the turn, its own notes again.
                        known = turn.notes if turn.stop_reason is StopReason.ANSWERED else self._chat.dial.notes
                        for note in select_notes(self._chat.dial, turn.notes, quiet=self._chat.options.quiet):
                            (warn_once if note in known else warn)(note)
                        for line in describe_stop(turn, "/continue goes on"):
                            warn(line)
        except DialError as error:
            self._sink.end()
            # Not `warn_once`: print a repeated error again.
            report_error(f"{error}: /retry" if error.left_out else str(error))
        finally:
            self._sink.end()
            self._is_answering = False
            if not is_cancelled:
                self._console.attention.expect(ANSWER)

    async def _measure(self) -> None:
        if self._status is not None:
            await self._status.measure()

    def _interrupt(self) -> None:
        """Stop the running answer; if there is none, leave at the second interrupt."""
        if self._is_answering or process_runner.interrupts.has_scope:
            process_runner.interrupts.interrupt()
        elif self._will_leave:
            process_runner.interrupts.leaving.cancel()
        else:
            self._will_leave = True
            self._console.print("Press Ctrl-C again, or Ctrl-D, to exit.")
