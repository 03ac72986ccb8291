"""The loop of a conversation: read a line, answer it, repeat."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import anyio

from dial_client.cli import elicitation_prompt, process_runner
from dial_client.cli.chat.chat_session import ChatSession, CommandResult, describe_limit, open_session
from dial_client.cli.chat.conversation_commands import show_last_exchange
from dial_client.cli.chat.slash_commands import describe_commands, list_command_arguments, run_command
from dial_client.cli.chat.startup_report import WaitForServers
from dial_client.cli.input.input_references import with_attachments
from dial_client.cli.input.shell_command import ShellCommands
from dial_client.cli.input.tab_completion import build_completer
from dial_client.cli.load_settings import warn, warn_once
from dial_client.cli.open_client import open_client
from dial_client.cli.options import Options
from dial_client.cli.terminal.console import Console
from dial_client.cli.terminal_approver import build_approver
from dial_client.cli.tty import UserInput
from dial_client.conversations.persistence import LEFT_OUT
from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.events import Event, Finished
from dial_client.messages.limits import StopReason
from dial_client.messages.model import Provider
from dial_client.settings.config_types import Settings
from dial_client.sinks.turn_display import TurnSink

# Seconds for which a request is repeated while the model's endpoint limits the rate of requests.
_PATIENCE = 60.0


async def run_loop(
    options: Options,
    settings: Settings,
    provider: Provider,
    console: Console,
    sink: TurnSink,
    wait_for_servers: WaitForServers,
    during_answer: WaitForServers | None = None,
) -> None:
    """Open the client and the conversation, and answer input until the user leaves."""
    callbacks = elicitation_prompt.build_callbacks(options, sink)
    async with (
        open_client(options, settings, provider, build_approver(sink, console, settings.servers), callbacks) as dial,
        open_session(options, settings, dial, console) as chat,
    ):
        console.complete_with(build_completer(dial, describe_commands(), list_command_arguments(chat)))
        # A person sees the wait, and may interrupt it.
        dial.model.patience = _PATIENCE
        chat.add_usage = sink.usage.add_usage
        if options.continue_latest or options.resume is not None:
            await show_last_exchange(chat)
        await ConversationLoop(chat, console, sink, during_answer).run(wait_for_servers)
        console.close()


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
        console.set_interrupt(self._interrupt)

    async def run(self, wait_for_servers: WaitForServers) -> None:
        """Answer input until the user leaves; meanwhile `wait_for_servers` reports on the start of the servers."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._report_on_servers, wait_for_servers)
            if self._chat.conversation_id is not None and await self._chat.find_waiting():
                self._console.print("The last turn was interrupted while a call waits for approval: it continues.")
                await self._answer(self._chat.resume())
            while (user_input := await self._console.read_input()) is not None:
                self._will_leave = False
                self._console.echo(user_input)
                result = await self._run_input(user_input)
                if result.quit:
                    break
                if result.draft is not None:
                    self._console.edit(result.draft)
                if result.message is not None:
                    async with anyio.create_task_group() as answer_group:
                        if self._during_answer is not None:
                            answer_group.start_soon(self._during_answer, self._chat.dial)
                        await self._answer(self._chat.ask(result.message))
                        answer_group.cancel_scope.cancel()
            group.cancel_scope.cancel()

    async def _report_on_servers(self, wait_for_servers: WaitForServers) -> None:
        try:
            await wait_for_servers(self._chat.dial)
        except DialError as error:
            warn(str(error))

    async def _run_input(self, user_input: UserInput) -> CommandResult:
        """Run the input if it is a command; return its result, or the question to send to the model."""
        if user_input.shown.startswith("!"):
            self._console.print_prose(await self._shell.run(user_input.text))
            return CommandResult()
        result = CommandResult(user_input.text or None)
        if user_input.shown.startswith("/"):
            result = await run_command(user_input.text, self._chat)
        if isinstance(result.message, str):
            question = replace(user_input, text=result.message, attachments=self._shell.outputs)
            try:
                result = CommandResult(await with_attachments(self._chat.dial, question))
            except ConfigError as error:
                warn(f"not sent: {error}")
                return CommandResult(draft=question.text)
            self._shell.forget_outputs()
        return result

    async def _answer(self, stream: AsyncGenerator[Event, None]) -> None:
        """Show the events of a turn."""
        self._is_answering = True
        self._sink.begin()
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    self._sink.show(event)
                    if isinstance(event, Finished):
                        turn = event.turn
                        # Each note once in this run; but if a limit ended the turn, its own notes again.
                        known = turn.notes if turn.stop_reason is StopReason.ANSWERED else self._chat.dial.notes
                        for note in turn.notes:
                            (warn_once if note in known else warn)(note)
                        for line in describe_limit(turn, "/continue goes on"):
                            warn(line)
        except DialError as error:
            self._sink.end()
            # Not `warn_once`: print a repeated error again.
            warn(f"{error}: /retry" if str(error).endswith(LEFT_OUT) else str(error))
        finally:
            self._sink.end()
            self._is_answering = False

    def _interrupt(self) -> None:
        """Stop the running answer; if there is none, leave at the second interrupt."""
        if self._is_answering or process_runner.interrupts.has_scope:
            process_runner.interrupts.interrupt()
        elif self._will_leave:
            process_runner.interrupts.leaving.cancel()
        else:
            self._will_leave = True
            self._console.print("Press Ctrl-C again, or Ctrl-D, to exit.")
