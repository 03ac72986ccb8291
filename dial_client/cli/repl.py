"""A conversation at the terminal: read a line, answer it, repeat."""

from __future__ import annotations

import sys
from contextlib import aclosing
from dataclasses import replace

import anyio

from dial_client.cli import elicitation_prompt
from dial_client.cli.bootstrap import config_name, opened, provider_of, say_notes, settings_of, warn
from dial_client.cli.chat_commands.chat_session import ChatSession, CommandResult, open_session
from dial_client.cli.chat_commands.command_registry import command_descriptions, run_command
from dial_client.cli.input.input_references import with_attachments
from dial_client.cli.input.tab_completion import completer
from dial_client.cli.input.user_input import UserInput
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.plain_screen import PlainScreen
from dial_client.cli.terminal_approver import approver
from dial_client.client.dial_client import DialClient
from dial_client.errors import ConfigError, DialError
from dial_client.events import Finished
from dial_client.messages import Message
from dial_client.sinks.terminal import TerminalSink
from dial_client.text.safe_text import one_line


async def talk_with(options: Options) -> int:
    """Hold a conversation until the person leaves."""
    settings = await settings_of(options)
    provider = provider_of(options, settings)
    sink = TerminalSink(reasoning=options.verbose, usage=options.verbose)
    async with (
        opened(options, settings, provider, approver(sink), elicitation_prompt.callbacks(options, sink)) as dial,
        open_session(options, settings, dial, PlainScreen()) as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_say_when_ready, dial)
        await _talk(session, sink, config_name(settings))
        group.cancel_scope.cancel()
    return ExitCode.ANSWERED


async def _say_when_ready(dial: DialClient) -> None:
    try:
        await dial.ready()
    except DialError as error:
        warn(str(error))
    say_notes(dial.notes)


async def _talk(chat: ChatSession, sink: TerminalSink, configuration: str) -> None:
    from prompt_toolkit.patch_stdout import patch_stdout

    from dial_client.cli.input.input_line import InputLine, history_path

    proposals = completer(chat.dial, command_descriptions())
    input_line = InputLine(lambda _: None, proposals, history=history_path())
    print(f"Configuration: {one_line(configuration, 600)}", file=sys.stderr)
    print("Ask anything; /help for more.", file=sys.stderr)
    while True:
        try:
            with patch_stdout(raw=True):
                user_input = await input_line.read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        result = await _result(user_input, chat)
        if result.quit:
            return
        if result.message is not None:
            await _answer(chat, result.message, sink)


async def _result(user_input: UserInput, chat: ChatSession) -> CommandResult:
    """Return what is left to do: for a command what it leaves, for other text the question."""
    result = CommandResult(user_input.text or None)
    if user_input.shown.startswith("/"):
        result = await run_command(user_input.text, chat)
    if isinstance(result.message, str):
        try:
            result = CommandResult(await with_attachments(chat.dial, replace(user_input, text=result.message)))
        except ConfigError as error:
            warn(str(error))
            return CommandResult()
    return result


async def _answer(chat: ChatSession, question: str | Message, sink: TerminalSink) -> None:
    try:
        async with aclosing(chat.ask(question)) as events:
            async for event in events:
                sink.show(event)
                if isinstance(event, Finished):
                    say_notes(event.turn.notes)
    except DialError as error:
        warn(str(error))
