"""The manual page of ``dial-chat``, from the source of its ``--help``: ``make man`` writes ``docs/dial-chat.1``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.cli.commands.command_help import (
    DESCRIPTION,
    EXAMPLES,
    EXIT_CODES,
    USAGE,
    OptionHelp,
    describe_option,
    group_options,
    is_shown,
)

_FILES = (
    ("./servers.json", "The configuration of a folder. It is used once you trust it: see dial-chat trust."),
    ("$XDG_CONFIG_HOME/dial-client/servers.json", "Your own configuration; the file of a folder overrides it."),
    ("$XDG_DATA_HOME/dial-client/conversations.db", "The conversations."),
    ("$XDG_STATE_HOME/dial-client/history", "What you typed in conversations."),
)
_ENVIRONMENT = (
    ("OPENAI_API_KEY, ANTHROPIC_API_KEY, DIAL_API_KEY", "The keys of model endpoints."),
    ("VISUAL, EDITOR", "The editor of Ctrl-X Ctrl-E, of config edit, and of the arguments of a call."),
    ("DIAL_EDITING_MODE", "The keys of the input line, vi or emacs, in place of editing-mode of your inputrc."),
    ("NO_COLOR", "If it is set, there are no colours and no live area, as with --plain."),
    ("DIAL_AUDIT", "off: no audit log is written; arguments: the log has the arguments of calls."),
    ("DIAL_PROFILE, DIAL_SERVE_TOKEN", "The defaults of --profile, and of serve --token."),
    ("DIAL_REGISTRY_URL", "The registry of servers search and servers add."),
    ("PAGER", "The pager of long results; less by default."),
)


def build_manual_page(commands: Mapping[str, Any]) -> str:
    """Return the manual page in roff, for section 1, of the commands by their names; the chat has an empty name."""
    lines = [
        '.TH DIAL-CHAT 1 "" "dial-chat" "User Commands"',
        ".SH NAME",
        "dial\\-chat \\- ask a chat model that can use the tools of your MCP servers",
        ".SH SYNOPSIS",
        *(f".B {_escape(usage)}\n.br" for usage in USAGE),
        ".SH DESCRIPTION",
        _escape(DESCRIPTION),
    ]
    for heading, options in group_options(commands[""]):
        lines += [f".SH {heading.upper()} OPTIONS", *(line for option in options for line in _format_option(option))]
    lines.append(".SH COMMANDS")
    for name in filter(None, sorted(commands)):
        lines += _format_command(name, commands[name])
    lines += [".SH EXIT STATUS", *(line for code, _, text in EXIT_CODES for line in _format_term(str(code), text))]
    lines += [".SH ENVIRONMENT", *(line for name, text in _ENVIRONMENT for line in _format_term(name, text))]
    lines += [".SH FILES", *(line for name, text in _FILES for line in _format_term(name, text))]
    lines += [".SH EXAMPLES", *(f".PP\n.nf\n{_escape(example)}\n.fi" for example in EXAMPLES)]
    return "\n".join(lines) + "\n"


def _format_command(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([name, *(argument.metavar or (argument.name or "").upper() for argument in arguments)])
    yield f".SS dial\\-chat {_escape(usage)}"
    yield _escape(command.help or "")
    for argument in arguments:
        if argument.help:
            yield from _format_term(argument.metavar or (argument.name or "").upper(), argument.help)
    for option in filter(is_shown, command.params):
        yield from _format_option(describe_option(option))


def _format_option(option: OptionHelp) -> list[str]:
    return _format_term(option.flags, option.text)


def _format_term(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_escape(term)}\\fR", _escape(text) or "\\&"]


def _escape(text: str) -> str:
    """Escape a text for roff: hyphens stay hyphens, and no line is read as a roff request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return re.sub(r"^(?=[.'])", r"\\&", " ".join(escaped.split()), flags=re.MULTILINE)


def main() -> None:
    """Write the manual page to standard output."""
    from dial_client.cli.commands import program_commands as registered  # noqa: F401 - it registers the commands
    from dial_client.cli.commands.typer_commands import build_all_commands

    sys.stdout.write(build_manual_page(build_all_commands()))


if __name__ == "__main__":
    main()
