"""A conversation at the terminal. A screen shows the prompt at once, and the client is loaded meanwhile."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path

from anyio import to_thread

from dial_client.cli.default_model import is_demonstration, read_with_model
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import print_to_stderr, warn_once
from dial_client.cli.terminal import banner
from dial_client.cli.terminal.banner import can_draw
from dial_client.cli.terminal.console import LineConsole
from dial_client.cli.terminal.turn_view import open_screen
from dial_client.cli.trust.configuration_files import describe_sources
from dial_client.cli.trust.folder_texts import FolderTexts, read_folder_texts
from dial_client.messages.model import Provider
from dial_client.settings.config_types import Settings
from dial_client.settings.host_documents import describe_folder_servers
from dial_client.sinks.terminal import TerminalSink


async def run_conversation(options: Options) -> None:
    """Run a conversation until the user leaves."""
    settings, provider = await read_with_model(options)
    texts = await read_folder_texts(options, settings)
    # Without any file `read_settings` has said so.
    is_only_users = (
        settings.sources and not options.config and Path.cwd() not in {file.parent for file in settings.sources}
    )
    if is_only_users and (of_other_hosts := describe_folder_servers(Path.cwd())):
        warn_once(of_other_hosts)
    talk = _talk_on_screen if can_draw(options) else _talk_in_lines
    await talk(options, settings, provider, texts)


def _name_model(options: Options, settings: Settings, provider: Provider) -> str:
    return f"{provider.info.name} (a demonstration)" if is_demonstration(options, settings) else provider.info.name


async def _talk_in_lines(options: Options, settings: Settings, provider: Provider, texts: FolderTexts) -> None:
    console = LineConsole()
    sink = TerminalSink(reasoning=options.verbose, usage=options.verbose or not options.quiet, calls=not options.quiet)
    if not options.quiet:
        print_to_stderr(banner.format_program_line(_name_model(options, settings, provider), banner.UNCUT))
        print_to_stderr(banner.format_folder_line(describe_sources(settings.sources), banner.UNCUT))
        if texts.names:
            print_to_stderr(banner.format_instructions_line(texts.names, banner.UNCUT))
    from dial_client.cli.chat.conversation_loop import run_loop
    from dial_client.cli.chat.startup_report import announce_servers, follow_lines
    from dial_client.client.dial_client import DialClient

    def print_line(line: str) -> None:
        console.print_between(lambda: sink.let_print(partial(print_to_stderr, line)))

    def print_warning(line: str) -> None:
        console.print_between(lambda: sink.let_print(partial(warn_once, line)))

    async def wait_for_servers(dial: DialClient) -> None:
        console.on_enter = dial.skip_starting
        await announce_servers(dial, quiet=options.quiet, print_line=print_warning)
        if not options.quiet:
            print_line(banner.format_servers_line(dial.servers, len(dial.tools), banner.UNCUT))

    during_answer = partial(follow_lines, console=console, print_line=print_line)
    try:
        await run_loop(options, settings, provider, texts, console, sink, wait_for_servers, during_answer=during_answer)
    finally:
        if sink.usage.turns > 1 and not options.quiet:
            print_to_stderr(sink.usage.line)


async def _talk_on_screen(options: Options, settings: Settings, provider: Provider, texts: FolderTexts) -> None:
    screen, view = open_screen(options)
    if not options.quiet:
        screen.print_faint(banner.format_program_line(_name_model(options, settings, provider), screen.columns))
        screen.print_faint(banner.format_folder_line(describe_sources(settings.sources), screen.columns))
        if texts.names:
            screen.print_faint(banner.format_instructions_line(texts.names, screen.columns))

    async def hold_conversation() -> None:
        # In a thread, so that the prompt is shown and accepts keys meanwhile.
        await to_thread.run_sync(import_module, "dial_client.cli.chat.conversation_loop")
        from dial_client.cli.chat.conversation_loop import run_loop
        from dial_client.cli.chat.startup_report import show_servers

        wait_for_servers = partial(show_servers, screen=screen, quiet=options.quiet)
        await run_loop(options, settings, provider, texts, screen, view, wait_for_servers)

    try:
        await screen.run(hold_conversation)
    finally:
        if view.usage.turns > 1 and not options.quiet:
            screen.print_faint(view.usage.line)
