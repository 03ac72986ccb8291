"""The commands about the configuration: reload it, log in to a server, and change the colours."""

from __future__ import annotations

from dial_client.cli.bootstrap import read_settings
from dial_client.cli.chat_commands.chat_session import ChatSession
from dial_client.cli.chat_commands.server_commands import describe_status
from dial_client.cli.configuration_reload import apply_configuration
from dial_client.messages.errors import ConfigError, DialError
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.servers.status import ServerStatus


async def reload(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Reload the configuration: changed servers are restarted, unchanged servers keep running."""
    settings = await read_settings(session.options)
    if not settings.sources and not session.settings.sources:
        raise ConfigError("there is no configuration file to reload")

    def report(name: str, result: ServerStatus | DialError) -> None:
        if isinstance(result, DialError):
            session.print(f"{to_one_line(name, 60)}: {sanitize(str(result))}")
        else:
            session.print(describe_status(result))

    changes = await apply_configuration(session.dial, session.options, session.settings, settings, report)
    session.settings = settings
    session.print(str(changes))


async def log_in(session: ChatSession, arguments: str) -> None:
    """Log in to a server, and restart it with the login."""
    from dial_client.cli import oauth_login
    from dial_client.cli.options import ExitCode

    if not arguments:
        raise ConfigError("which server?", hint="/login NAME; /servers lists them")
    if await oauth_login.log_in(session.options, arguments, browser=True) == ExitCode.ANSWERED:
        session.print(describe_status(await session.dial.restart_server(arguments)))


async def set_theme(session: ChatSession, arguments: str) -> None:
    """Change the colours of answers."""
    if session.set_theme is None:
        raise ConfigError("answers have no colours here")
    from dial_client.cli.markdown.themes import THEMES

    names = ", ".join(["auto", *THEMES])
    if not arguments:
        session.print(f"/theme NAME, one of {names}")
        return
    try:
        session.set_theme(arguments)
    except KeyError:
        raise ConfigError(f"there is no theme {to_one_line(arguments, 40)!r}", hint=f"one of {names}") from None
    session.print(f"Theme: {arguments}")
