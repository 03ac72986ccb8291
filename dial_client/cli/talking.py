"""A conversation in the terminal."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import platformdirs

from dial_client.cli.answering import Ask, conversation
from dial_client.cli.opening import opened, provider_of, say_notes, settings_of, warn
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.permission import approver
from dial_client.client import DialClient
from dial_client.errors import DialError
from dial_client.events import Finished
from dial_client.safe_text import one_line
from dial_client.sinks.terminal import TerminalSink

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_HELP = """/tools     the tools on offer
/servers   the servers and their state
/help      this
/quit      leave (also Ctrl-D); Ctrl-C stops an answer"""


async def talk_with(options: Options) -> int:
    """Talk until the person leaves."""
    settings = settings_of(options)
    provider = provider_of(options, settings)
    sink = TerminalSink(reasoning=options.verbose, usage=options.verbose)
    async with (
        opened(options, settings, provider, approver(sink)) as dial,
        conversation(options, dial) as ask,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_say_when_ready, dial)
        await _talk(dial, ask, sink)
        group.cancel_scope.cancel()
    return ExitCode.ANSWERED


async def _say_when_ready(dial: DialClient) -> None:
    try:
        await dial.ready()
    except DialError as error:
        warn(str(error))
    say_notes(dial.notes)


async def _talk(dial: DialClient, ask: Ask, sink: TerminalSink) -> None:
    from prompt_toolkit.patch_stdout import patch_stdout

    session = _prompt_session()
    print("Ask anything; /help for more.", file=sys.stderr)
    while True:
        try:
            with patch_stdout(raw=True):
                said = (await session.prompt_async("> ", handle_sigint=False)).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if said in ("/quit", "/exit"):
            return
        if said.startswith("/"):
            _command(said, dial)
        elif said:
            await _answer(ask, said, sink)


def _prompt_session() -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    folder = Path(platformdirs.user_state_dir("dial-client"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    history = folder / "history"
    history.touch(mode=0o600)
    return PromptSession(history=FileHistory(str(history)))


def _command(said: str, dial: DialClient) -> None:
    match said:
        case "/tools":
            for tool in dial.tools:
                print(f"{tool.name}  {one_line(tool.description, 100)}")
        case "/servers":
            for status in dial.servers.values():
                detail = status.error or f"{len(status.tools)} tools"
                print(f"{one_line(status.name, 60)}: {status.state.value}: {one_line(detail, 600)}")
        case "/help":
            print(_HELP)
        case _:
            warn(f"unknown command {said}: /help lists them")


async def _answer(ask: Ask, said: str, sink: TerminalSink) -> None:
    try:
        async with aclosing(ask(said)) as events:
            async for event in events:
                sink.show(event)
                if isinstance(event, Finished):
                    say_notes(event.turn.notes)
    except DialError as error:
        warn(str(error))
