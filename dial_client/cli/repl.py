"""A conversation at the terminal: read a line, answer it, repeat."""

from __future__ import annotations

import re
import sys
from contextlib import aclosing

import anyio

from dial_client.cli import elicitation_prompt, resources_and_prompts
from dial_client.cli.bootstrap import config_name, opened, provider_of, say_notes, settings_of, warn
from dial_client.cli.input.input_references import prompt_called, with_resources
from dial_client.cli.input.tab_completion import completer
from dial_client.cli.input.user_input import UserInput
from dial_client.cli.one_shot import Ask, conversation
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.terminal_approver import approver
from dial_client.client.dial_client import DialClient
from dial_client.errors import DialError
from dial_client.events import Finished
from dial_client.messages import Message
from dial_client.servers.status import ServerStatus
from dial_client.sinks.terminal import TerminalSink
from dial_client.text.safe_text import one_line

_HELP = """@server:uri goes along with a question; /server:prompt arg=value says a prompt; Tab completes
/tools     the tools on offer
/resources what the servers have to read
/prompts   what the servers have to say for you
/servers   the servers and their state
/restart NAME  starts a server anew
/help      this
/quit      leave (also Ctrl-D); Ctrl-C stops an answer"""


async def talk_with(options: Options) -> int:
    """Hold a conversation until the person leaves."""
    settings = await settings_of(options)
    provider = provider_of(options, settings)
    sink = TerminalSink(reasoning=options.verbose, usage=options.verbose)
    async with (
        opened(options, settings, provider, approver(sink), elicitation_prompt.callbacks(options, sink)) as dial,
        conversation(options, dial) as ask,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_say_when_ready, dial)
        await _talk(dial, ask, sink, config_name(settings))
        group.cancel_scope.cancel()
    return ExitCode.ANSWERED


async def _say_when_ready(dial: DialClient) -> None:
    try:
        await dial.ready()
    except DialError as error:
        warn(str(error))
    say_notes(dial.notes)


async def _talk(dial: DialClient, ask: Ask, sink: TerminalSink, configuration: str) -> None:
    from prompt_toolkit.patch_stdout import patch_stdout

    from dial_client.cli.input.input_line import InputLine, history_path

    proposals = completer(dial, re.findall(r"^(/\w+)", _HELP, re.MULTILINE))
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
        if user_input.text in ("/quit", "/exit"):
            return
        question = await _question(user_input, dial) if user_input.text else None
        if question is not None:
            await _answer(ask, question, sink)


async def _question(user_input: UserInput, dial: DialClient) -> str | Message | None:
    """Return the question to ask; None where the line was a command, which is carried out."""
    line = user_input.text
    if not user_input.typed.startswith("/"):
        return await with_resources(dial, line, user_input.typed)
    if line.startswith("/restart "):
        await _restart(line.removeprefix("/restart ").strip(), dial)
    elif ":" in line:
        return await prompt_called(dial, line)
    elif line in ("/resources", "/prompts"):
        await resources_and_prompts.show(dial, line[1:])
    else:
        _command(line, dial)
    return None


def _command(line: str, dial: DialClient) -> None:
    match line:
        case "/tools":
            for tool in dial.tools:
                print(f"{tool.name}  {one_line(tool.description, 100)}")
        case "/servers":
            for status in dial.servers.values():
                print(_state(status))
        case "/help":
            print(_HELP)
        case _:
            warn(f"unknown command {line}: /help lists them")


async def _restart(name: str, dial: DialClient) -> None:
    try:
        print(_state(await dial.restart_server(name)))
    except DialError as error:
        warn(str(error))


def _state(status: ServerStatus) -> str:
    detail = status.error or f"{len(status.tools)} tools"
    return f"{one_line(status.name, 60)}: {status.state.value}: {one_line(detail, 600)}"


async def _answer(ask: Ask, question: str | Message, sink: TerminalSink) -> None:
    try:
        async with aclosing(ask(question)) as events:
            async for event in events:
                sink.show(event)
                if isinstance(event, Finished):
                    say_notes(event.turn.notes)
    except DialError as error:
        warn(str(error))
