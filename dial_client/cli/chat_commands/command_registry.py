"""All commands of a conversation: their names, their descriptions, and how the one that a line names is run."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from dial_client.cli.chat_commands import server_commands
from dial_client.cli.chat_commands.chat_session import ChatSession, CommandResult
from dial_client.cli.tty import Unanswered
from dial_client.errors import DialError
from dial_client.text.safe_text import one_line, safe

Run = Callable[[ChatSession, str], Awaitable[CommandResult | None]]
"""Runs a command with the words behind its name; None where nothing is left to do."""


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command of a conversation."""

    name: str
    """With its slash: ``/model``."""
    arguments: str
    """As ``/help`` shows them; empty for none."""
    description: str
    """One line."""
    run: Run


async def run_command(line: str, session: ChatSession) -> CommandResult:
    """Run the command that a line names, or return the message of the server's prompt that it names.

    A path at the beginning of a line is no command: the line is a question.
    """
    name, _, arguments = line.strip().partition(" ")
    command = _find(name)
    try:
        if command is not None:
            return await command.run(session, arguments.strip()) or CommandResult()
        if ":" in name:
            return CommandResult(await server_commands.call_prompt(session, line.strip()))
    except Unanswered:
        return CommandResult()
    except DialError as error:
        session.print(safe(" ".join(str(error).split())))
        return CommandResult()
    if "/" in name[1:]:
        return CommandResult(line)
    session.print(describe_unknown(name))
    return CommandResult()


def command_descriptions() -> Mapping[str, str]:
    """Return the names of all commands, with their descriptions."""
    return {command.name: command.description for command in COMMANDS}


def describe_unknown(name: str) -> str:
    """Return a sentence about a command that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name, [*command_descriptions(), *_ALIASES], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"There is no command {one_line(name, 60)}: {hint}/help lists the commands."


def _find(name: str) -> ChatCommand | None:
    name = _ALIASES.get(name, name)
    return next((command for command in COMMANDS if command.name == name), None)


async def _help(session: ChatSession, arguments: str) -> None:
    """List the commands, or describe those that are named."""
    words = [f"/{word.lstrip('/')}" for word in arguments.split()]
    found = [command for command in COMMANDS if not words or command.name in words]
    if not found:
        session.print(describe_unknown(words[0]))
        return
    usages = [f"{command.name} {command.arguments}".strip() for command in found]
    width = max(len(usage) for usage in usages)
    lines = [f"{usage:<{width}}  {command.description}" for usage, command in zip(usages, found, strict=True)]
    session.print("\n".join([*lines, *([] if words else _HELP_END)]))


async def _quit(session: ChatSession, arguments: str) -> CommandResult:  # noqa: ARG001 - a `Run`
    return CommandResult(quit=True)


_HELP_END = [
    "",
    "/SERVER:PROMPT ARG=VALUE sends a prompt of a server; @SERVER:URI in a question attaches a resource.",
    "Tab completes; Ctrl-C stops an answer; Ctrl-D leaves.",
]
_ALIASES = {"/exit": "/quit"}

COMMANDS = (
    ChatCommand("/help", "[COMMAND]", "list the commands", _help),
    ChatCommand("/tools", "", "the tools on offer", server_commands.show_tools),
    ChatCommand("/servers", "[restart NAME]", "the servers and their state", server_commands.show_servers),
    ChatCommand("/resources", "", "what the servers have to read", server_commands.show_resources),
    ChatCommand("/prompts", "", "what the servers have to say for you", server_commands.show_prompts),
    ChatCommand("/restart", "NAME", "start a server anew", server_commands.restart),
    ChatCommand("/quit", "", "leave (also Ctrl-D)", _quit),
)
"""In the order of ``/help``."""
