"""A conversation at the terminal: the prompt is there first, and the rest is loaded behind it."""

from __future__ import annotations

import sys
from functools import partial

from anyio import to_thread

from dial_client.cli.bootstrap import config_name, provider_of, settings_of, warn
from dial_client.cli.options import Options
from dial_client.cli.terminal import banner
from dial_client.cli.terminal.ability import can_draw
from dial_client.cli.terminal.console import LineConsole
from dial_client.cli.terminal.turn_view import open_screen
from dial_client.model import Provider
from dial_client.settings.configuration import Settings
from dial_client.sinks.terminal import TerminalSink
from dial_client.text.safe_text import one_line


async def talk_with(options: Options) -> int:
    """Hold a conversation until the person leaves."""
    settings = await settings_of(options)
    provider = provider_of(options, settings)
    if can_draw(options):
        return await _talk_on_screen(options, settings, provider)
    console, sink = LineConsole(), TerminalSink(reasoning=options.verbose, usage=options.verbose)
    if not options.quiet:
        print(f"Configuration: {one_line(config_name(settings), 600)}", file=sys.stderr)
        print("Ask anything; /help for more.", file=sys.stderr)
    from dial_client.cli.conversation_loop import talk
    from dial_client.cli.start_up import announce_servers

    def say(text: str) -> None:
        sink.let_print(partial(warn, text))

    return await talk(options, settings, provider, console, sink, partial(announce_servers, say=say))


async def _talk_on_screen(options: Options, settings: Settings, provider: Provider) -> int:
    screen, view = open_screen(options)
    if not options.quiet:
        screen.print_faint(banner.program_line(provider.info.name, screen.columns))
        screen.print_faint(banner.folder_line(config_name(settings), screen.columns))

    async def work() -> int:
        # In a thread of its own: the prompt is on the screen, and keys are shown meanwhile.
        await to_thread.run_sync(_load_client)
        from dial_client.cli.conversation_loop import talk
        from dial_client.cli.start_up import show_servers

        start_up = partial(show_servers, screen=screen, quiet=options.quiet)
        return await talk(options, settings, provider, screen, view, start_up)

    try:
        return await screen.run(work)
    finally:
        if view.usage.turns > 1 and not options.quiet:
            screen.print_faint(view.usage.line)


def _load_client() -> None:
    """Load what a conversation needs and the first prompt does not."""
    from dial_client.cli import conversation_loop  # noqa: F401 - it is loaded
