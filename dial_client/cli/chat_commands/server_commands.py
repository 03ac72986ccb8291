"""The commands about servers: their tools, resources and prompts, their state, and their restart."""

from __future__ import annotations

from dial_client.cli import resources_and_prompts
from dial_client.cli.chat_commands.chat_session import ChatSession
from dial_client.cli.input.input_references import build_prompt_message
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message
from dial_client.runtime.counted_nouns import count_noun
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.status import ServerState, ServerStatus


async def show_tools(session: ChatSession, arguments: str) -> None:
    """List the tools, or those that have all words of `arguments` in their name, server or description."""
    words = arguments.lower().split()
    found = [
        tool
        for tool in session.dial.tools
        if all(word in f"{tool.name} {tool.server} {tool.description}".lower() for word in words)
    ]
    width = min(40, max((len(tool.name) for tool in found), default=0))
    lines = [f"{tool.name:<{width}}  {to_one_line(tool.description, 100)}" for tool in found]
    states = {to_one_line(name, 60): status.state for name, status in session.dial.servers.items()}
    if starting := [name for name, state in states.items() if state is ServerState.STARTING]:
        lines.append(f"Still starting: {', '.join(starting)}.")
    session.print("\n".join(lines) or ("No tool has these words." if words else "There are no tools."))


async def show_servers(session: ChatSession, arguments: str) -> None:
    """List the servers, or restart one."""
    action, _, name = arguments.partition(" ")
    if action == "restart":
        await restart(session, name.strip())
    elif action:
        session.print("/servers lists the servers; /servers restart NAME restarts a server.")
    else:
        lines = [describe_status(status) for status in session.dial.servers.values()]
        session.print("\n".join(lines) or "No servers are configured.")


async def show_resources(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """List the resources of the servers."""
    await resources_and_prompts.show(session.dial, "resources")


async def show_prompts(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """List the prompts of the servers."""
    await resources_and_prompts.show(session.dial, "prompts")


async def restart(session: ChatSession, name: str) -> None:
    """Restart a server.

    Raises:
        ConfigError: No server is named, or there is no server of this name.
    """
    if not name:
        raise ConfigError("which server?", hint="/restart NAME; /servers lists them")
    session.print(describe_status(await session.dial.restart_server(name)))


async def call_prompt(session: ChatSession, line: str) -> Message | None:
    """Return the message of ``/server:prompt arg=value``; None, with a warning, if that fails."""
    return await build_prompt_message(session.dial, line)


def describe_status(status: ServerStatus) -> str:
    """Return the state of a server in one line."""
    detail = status.error or count_noun(len(status.tools), "tool")
    return f"{to_one_line(status.name, 60)}: {status.state.value}: {to_one_line(detail, 600)}"
