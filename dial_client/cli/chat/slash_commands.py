"""All commands of a conversation with their descriptions, and the function that runs the command of a line."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from dial_client.cli.approval.approval_modes import MEANINGS
from dial_client.cli.chat import conversation_commands, output_commands, server_commands
from dial_client.cli.chat.chat_session import ChatSession, CommandResult
from dial_client.cli.chat.own_commands import OwnCommand
from dial_client.cli.input.input_references import build_prompt_message
from dial_client.cli.options import Format
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.tty import Unanswered
from dial_client.messages.errors import DialError
from dial_client.runtime.safe_text import sanitize, to_one_line

# Runs a command with the words after its name; returns None if nothing is left to do.
Run = Callable[[ChatSession, str], Awaitable[CommandResult | None]]


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command of a conversation."""

    name: str
    """The name with its slash, such as ``/model``."""
    arguments: str
    """The arguments in ``/help``; empty if there are none."""
    description: str
    """The description in ``/help``, in one line."""
    run: Run
    informs: Callable[[str], bool] = lambda _: False
    """Returns whether the command only shows something, with these arguments: it then runs beside a turn, too."""


def is_command(line: str) -> bool:
    """Return True if a line is a command: it begins with ``/``, or is a word such as ``exit``, typed alone."""
    return line.startswith("/") or line.strip().lower() in _WORDS


def is_information(line: str) -> bool:
    """Return True if a line is a command that only shows something."""
    full_name, arguments = _parse(line)
    return any(command.name == full_name and command.informs(arguments) for command in COMMANDS)


async def show_information(line: str, session: ChatSession) -> None:
    """Run a command for which `is_information` is true, beside a turn: Ctrl-C stops the turn, not the command."""
    try:
        await _run(line.strip(), session)
    except DialError as error:
        session.print(sanitize(" ".join(str(error).split())))


async def run_command(line: str, session: ChatSession) -> CommandResult:
    """Run the command that a line names; if the line names a server's prompt, return the prompt's message.

    A line that begins with a path is a question, not a command. Ctrl-C cancels a command.
    """
    result: CommandResult | None = None
    with process_runner.interrupts.scope() as scope:
        try:
            result = await _run(line.strip(), session)
        except Unanswered:
            result = CommandResult()
        except DialError as error:
            session.print(sanitize(" ".join(str(error).split())))
    if scope.cancelled_caught:
        session.print("interrupted")
    return result or CommandResult()


async def _run(line: str, session: ChatSession) -> CommandResult | None:
    name = line.partition(" ")[0]
    full_name, arguments = _parse(line)
    for command in COMMANDS:
        if command.name == full_name:
            return await command.run(session, arguments)
    if (own := session.own_commands.get(full_name)) is not None:
        return CommandResult(own.build_message(arguments) or None)
    if ":" in name:
        return CommandResult(await build_prompt_message(session.dial, line))
    if "/" in name[1:]:
        return CommandResult(line)
    session.print(describe_unknown(name, session.own_commands))
    return None


def list_names() -> frozenset[str]:
    """Return the names of all commands of the program, and their aliases."""
    return frozenset((*describe_commands(), *_ALIASES))


def _parse(line: str) -> tuple[str, str]:
    """Return the full name of the command of a line, and its arguments."""
    name, _, arguments = _WORDS.get(line.strip().lower(), line.strip()).partition(" ")
    return _ALIASES.get(name.lower(), name.lower()), arguments.strip()


def describe_commands() -> Mapping[str, str]:
    """Return the names of all commands, with their descriptions."""
    return {command.name: command.description for command in COMMANDS}


def list_command_arguments(session: ChatSession) -> Mapping[str, Callable[[], Mapping[str, str]]]:
    """Return, for each command whose arguments can be completed, a function that returns them with descriptions."""

    def list_servers() -> dict[str, str]:
        return {name: status.state.value for name, status in session.dial.servers.items()}

    def list_skills() -> dict[str, str]:
        return {to_one_line(name, 120): to_one_line(text, 80) for name, text in session.dial.skills.names.items()}

    def list_patterns() -> dict[str, str]:
        tools = {f"{tool.server}/{tool.tool}": tool.title or "" for tool in session.dial.tools}
        return {f"{name}/*": "all its tools" for name in session.dial.servers} | tools

    def list_revocable() -> dict[str, str]:
        approvals = session.dial.approvals
        granted = (*approvals.session_grants, *((grant.server, grant.tool) for grant in approvals.stored_grants))
        tools = (f"{server}/{tool}" for server, tool in granted)
        return {f"revoke {name}": "" for name in (*approvals.rules.allow, *approvals.rules.deny, *tools)}

    return {
        "/help": lambda: {name[1:]: about for name, about in describe_commands().items()},
        "/model": lambda: conversation_commands.list_model_choices(session),
        "/format": lambda: dict.fromkeys(get_args(Format), ""),
        "/system": lambda: {"none": "no instructions"},
        "/compact": lambda: {"undo": "restore the summarized messages"},
        "/copy": lambda: {"code": "the last block of code"},
        "/servers": lambda: {f"restart {name}": state for name, state in list_servers().items()},
        "/skill": list_skills,
        "/restart": list_servers,
        "/login": list_servers,
        "/mode": lambda: {mode.value: meaning for mode, meaning in MEANINGS.items()},
        "/approve": list_patterns,
        "/deny": list_patterns,
        "/grants": list_revocable,
    }


def describe_unknown(name: str, own: Iterable[str] = ()) -> str:
    """Return a sentence about a command that does not exist, with the nearest existing command."""
    if instead := _INSTEAD.get(name.lower()):
        return f"There is no command {name.lower()} here: {instead}."
    near = difflib.get_close_matches(name, [*list_names(), *own])
    # The commonest error is a change of order: /modle is /model, although /mode is nearer.
    near.sort(key=lambda known: sorted(known) != sorted(name))
    hint = f"did you mean {near[0]}? " if near else ""
    return f"There is no command {to_one_line(name, 60)}: {hint}/help lists the commands."


async def _help(session: ChatSession, arguments: str) -> None:
    """List all commands, or the commands that `arguments` names."""
    words = [_ALIASES.get(word, word) for word in (f"/{word.lstrip('/')}" for word in arguments.split())]
    commands: tuple[ChatCommand | OwnCommand, ...] = (*COMMANDS, *session.own_commands.values())
    found = [command for command in commands if not words or command.name in words]
    if not found:
        session.print(describe_unknown(words[0], session.own_commands))
        return
    usages = [f"{command.name} {command.arguments}".strip() for command in found]
    width = max(len(usage) for usage in usages)
    lines = [f"{usage:<{width}}  {command.description}" for usage, command in zip(usages, found, strict=True)]
    session.print("\n".join([*lines, *([] if words else _HELP_END)]))


async def _send_now(session: ChatSession, arguments: str) -> CommandResult:  # noqa: ARG001 - a `Run`
    """Ask at once, because no turn is running; the conversation loop takes ``/now`` while a turn runs."""
    return CommandResult(arguments or None)


async def _quit(session: ChatSession, arguments: str) -> CommandResult:  # noqa: ARG001 - a `Run`
    return CommandResult(quit=True)


_HELP_END = [
    "",
    "/SERVER:PROMPT ARG=VALUE sends a prompt of a server; @SERVER:URI in a question attaches a resource.",
    "Tab completes; Esc or Ctrl-C stops an answer; Ctrl-D leaves.",
]
# Words that are commands if they are typed alone, as in many programs.
_WORDS = {"exit": "/quit", "quit": "/quit", "?": "/help"}
# Further names of commands, most of them of other programs.
_ALIASES = {
    "/exit": "/quit",
    "/q": "/quit",
    "/?": "/help",
    "/clear": "/new",
    "/reset": "/new",
    "/sessions": "/resume",
    "/history": "/resume",
    "/branch": "/fork",
    "/rewind": "/undo",
    "/regenerate": "/retry",
    "/compress": "/compact",
    "/summarize": "/compact",
    "/cost": "/usage",
    "/stats": "/usage",
    "/status": "/usage",
    "/mcp": "/servers",
    "/extensions": "/servers",
    "/permissions": "/grants",
    "/approvals": "/grants",
}
# What to type in place of commands of other programs.
_INSTEAD = {
    "/config": "!dial-chat config shows the files of the configuration; /model, /mode and /theme change a conversation",
    "/settings": "!dial-chat config shows the files of the configuration",
    "/init": "!dial-chat init writes a first configuration",
    "/doctor": "!dial-chat doctor checks the configuration",
    "/bug": "!dial-chat bug-report collects what a report needs",
    "/logout": "!dial-chat servers logout NAME",
    "/plan": "/mode plan",
    "/vim": "start with DIAL_EDITING_MODE=vi",
}

# The command that steers the running turn.
NOW = "/now"


def _always(arguments: str) -> bool:  # noqa: ARG001 - `ChatCommand.informs`
    return True


def _alone(arguments: str) -> bool:
    """With arguments the command changes something."""
    return not arguments


# All commands, in the order of ``/help``.
COMMANDS = (
    ChatCommand("/help", "[COMMAND]", "list the commands", _help, _always),
    ChatCommand("/new", "", "begin a new conversation", conversation_commands.begin_new),
    ChatCommand("/resume", "[ID|WORDS]", "continue another conversation", conversation_commands.resume),
    ChatCommand("/fork", "[TITLE]", "continue in a copy of the conversation", conversation_commands.fork),
    ChatCommand("/rename", "TITLE", "change the title of the conversation", conversation_commands.rename),
    ChatCommand("/undo", "", "remove the last question and its answer", conversation_commands.undo),
    ChatCommand("/redo", "", "restore what /undo removed", conversation_commands.redo),
    ChatCommand("/retry", "", "ask the last question again", conversation_commands.retry),
    ChatCommand("/continue", "", "go on after a limit or a cut answer", conversation_commands.go_on),
    ChatCommand("/edit", "", "change the last question, and ask it again", conversation_commands.edit),
    ChatCommand(NOW, "TEXT", "send a message to the running turn, with its next results", _send_now),
    ChatCommand("/compact", "[undo]", "summarize the older part of the conversation", conversation_commands.compact),
    ChatCommand("/copy", "[N|code]", "copy an answer, or its last block of code", output_commands.copy),
    ChatCommand("/save", "FILE", "write the latest answer to a file", output_commands.save),
    ChatCommand("/export", "[FILE]", "write the conversation to a file (.md or .json)", output_commands.export),
    ChatCommand("/calls", "", "the tool calls of the latest turn", output_commands.show_calls, _always),
    ChatCommand("/last", "[N]", "the whole result of a tool call", output_commands.show_last),
    ChatCommand("/model", "[NAME]", "the model, or answer with another one", conversation_commands.show_or_switch),
    ChatCommand("/models", "", "the models that /model takes", conversation_commands.show_models),
    ChatCommand("/system", "[TEXT|none]", "the instructions for the model", conversation_commands.show_or_set_system),
    ChatCommand("/format", "[NAME]", "how tool calls are written", conversation_commands.show_or_set_format),
    ChatCommand(
        "/usage", "", "tokens, cost, and the context window (also /cost)", conversation_commands.show_usage, _always
    ),
    ChatCommand("/context", "", "what fills the context window", conversation_commands.show_context, _always),
    ChatCommand("/tools", "[WORDS]", "the tools that the model can call", server_commands.show_tools, _always),
    ChatCommand("/servers", "[restart NAME]", "the servers and their state", server_commands.show_servers, _alone),
    ChatCommand("/restart", "NAME", "restart a server", server_commands.restart),
    ChatCommand("/resources", "", "the servers' resources; @SERVER:URI attaches one", server_commands.show_resources),
    ChatCommand("/prompts", "", "the servers' prompts; /SERVER:PROMPT sends one", server_commands.show_prompts),
    ChatCommand("/skills", "[show|trust NAME]", "the skills that the model can read", server_commands.show_skills),
    ChatCommand("/skill", "NAME [TEXT]", "begin with a skill: its text is sent", server_commands.begin_skill),
    ChatCommand("/login", "NAME", "log in to a server", server_commands.log_in),
    ChatCommand(
        "/mode", "[MODE]", "what runs without asking (also Shift-Tab)", server_commands.show_or_set_mode, _always
    ),
    ChatCommand("/approve", "PATTERN", "allow tools until you leave: time/*", server_commands.approve),
    ChatCommand("/deny", "PATTERN", "deny tools until you leave", server_commands.deny),
    ChatCommand("/grants", "[revoke PATTERN]", "the rules and grants for tools", server_commands.show_grants, _alone),
    ChatCommand("/reload", "", "read the configuration again", server_commands.reload),
    ChatCommand("/theme", "[NAME]", "the colours of answers", server_commands.set_theme),
    ChatCommand("/quit", "", "leave (also Ctrl-D)", _quit),
)
