"""The commands about the configuration: read it again, log in to a server, and change the colours."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from dial_client.cli.bootstrap import policy_of, settings_of
from dial_client.cli.chat_commands.chat_session import ChatSession
from dial_client.cli.chat_commands.server_commands import describe_status
from dial_client.errors import ConfigError, DialError
from dial_client.settings.config_types import ServerSettings
from dial_client.text.safe_text import one_line, safe


async def reload(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """Read the configuration again: changed servers are restarted, the others keep running."""
    if session.settings.path is None:
        raise ConfigError("there is no configuration file to read again")
    settings = await settings_of(session.options)
    if settings.path != session.settings.path:
        raise ConfigError(
            "another configuration would be read now", hint="the conversation goes on with the one before"
        )
    before, after = session.settings.servers, settings.servers
    changed = [name for name in after if name in before and before[name] != after[name]]
    removed = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    for name in (*removed, *changed):
        if name in session.dial.servers:
            await session.dial.remove_server(name)
    async with anyio.create_task_group() as group:
        for name in (*changed, *added):
            group.start_soon(_add, session, name, after)
    session.dial.approvals.set_policy(policy_of(session.options, settings))
    session.settings = settings
    same = len(after) - len(changed) - len(added)
    counts = f"{len(added)} added, {len(changed)} changed, {len(removed)} removed, {same} unchanged and still running"
    session.print(f"Servers: {counts}. Models and rules are those of the file now.")


async def _add(session: ChatSession, name: str, servers: Mapping[str, ServerSettings]) -> None:
    try:
        session.print(describe_status(await session.dial.add_server(name, servers[name])))
    except DialError as error:
        session.print(f"{one_line(name, 60)}: {safe(str(error))}")


async def log_in(session: ChatSession, arguments: str) -> None:
    """Log in to a server, and start it anew with the login."""
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
        raise ConfigError(f"there is no theme {one_line(arguments, 40)!r}", hint=f"one of {names}") from None
    session.print(f"Theme: {arguments}")
