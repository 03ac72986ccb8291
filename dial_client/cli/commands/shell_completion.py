"""Completion in the user's shell: the candidates for the last word, and the scripts of the shells.

A script runs ``dial-chat`` with the variable `cli.COMPLETION_VARIABLE` and the words of the command line. The
candidates come from files on this machine: no server is started, no model requested, no untrusted configuration used.
Import `program_commands` first, because it registers the commands.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.core import TyperArgument

from dial_client.cli.commands.command_help import describe_option
from dial_client.cli.commands.command_line import find_command, find_prompt_words
from dial_client.cli.commands.typer_commands import (
    GROUPS,
    build_command,
    describe_command,
    list_command_names,
    list_options,
)
from dial_client.cli.trust.configuration_files import find_files
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings import configuration
from dial_client.settings.config_types import Outline, Settings, is_enabled

MAX_CONVERSATIONS = 50
# Seconds to wait for a program that writes to the database.
PATIENCE = 0.2
# Candidate values, with descriptions.
Candidates = Mapping[str, str]
# Lists names, given the configuration that the command line names, or None for the files that are found.
ListNames = Callable[[str | None], Candidates]


def _list_servers(config: str | None) -> Candidates:
    servers = {name: entry for outline in _read_outlines(config) for name, entry in outline.servers.items()}
    return {name: "" if is_enabled(entry) else "disabled" for name, entry in servers.items()}


def _list_models(config: str | None) -> Candidates:
    from dial_client.cli.models.model_names import list_known_models

    return list_known_models(name for outline in _read_outlines(config) for name in outline.models)


def _list_profiles(config: str | None) -> Candidates:
    return dict.fromkeys(_read_settings(config).profiles, "")


def _list_tools(config: str | None) -> Candidates:
    """Return the names, as offered to the model, of the tools that the servers had when they last ran."""
    from dial_client.tools.catalog import assign_names

    tools = dict(_read_cached_tools(config))
    return {name: tools[key] for key, name in assign_names(tools).items()}


def _list_patterns(config: str | None) -> Candidates:
    """Return patterns of tools: a pattern for all tools of each server, and a pattern for each tool."""
    names = {f"{server}/*": "all tools" for server in _list_servers(config)}
    return names | {f"{server}/{tool}": about for (server, tool), about in _read_cached_tools(config)}


def _list_conversations(config: str | None) -> Candidates:  # noqa: ARG001 - one of the lists
    """Return the ids of the latest conversations, with their titles."""
    import platformdirs

    file = platformdirs.user_data_path("dial-client", appauthor=False) / "conversations.db"
    if not file.is_file():
        return {}
    query = f"SELECT id, title FROM conversations ORDER BY updated_at DESC LIMIT {MAX_CONVERSATIONS}"  # noqa: S608
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=PATIENCE)) as connection:
            return {str(id_): str(title) for id_, title in connection.execute(query)}
    except sqlite3.Error:
        return {}


def _read_outlines(config: str | None) -> list[Outline]:
    """Return the entries of the configuration files in use, without untrusted files; none if a file is not valid."""
    try:
        return [configuration.outline(file.text) for file in find_files(config).files]
    except ConfigError:
        return []


def _read_settings(config: str | None) -> Settings:
    try:
        return configuration.combine(find_files(config).files)
    except ConfigError:
        return Settings()


def _read_cached_tools(config: str | None) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield server, tool and description of each tool in the cache."""
    from dial_client.client.client_setup import CACHE, open_cache

    cache = open_cache(True, CACHE)  # noqa: FBT003 - the user's own
    assert cache is not None
    for name, server in _read_settings(config).servers.items():
        tools = cache.read(server).get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                yield (name, tool["name"]), str(tool.get("title") or tool.get("description") or "")


_OPTION_VALUES: Mapping[str, ListNames] = {
    "model": _list_models,
    "profile": _list_profiles,
    "allow": _list_patterns,
    "deny": _list_patterns,
    "resume": _list_conversations,
}
# The commands of the group ``servers`` that take the name of an existing server.
_OF_SERVERS = ("login", "logout", "remove", "enable", "disable", "test")
_ARGUMENT_VALUES: Mapping[tuple[str, str], ListNames] = {
    ("call", "name"): _list_tools,
    **{(f"servers {name}", "name"): _list_servers for name in _OF_SERVERS},
    ("conversations", "target"): _list_conversations,
    ("policy", "name"): _list_tools,
}


def find_candidates(words: Sequence[str]) -> Candidates:
    """Return the candidates for the last of the words after ``dial-chat``; none if the shell should propose files."""
    *previous, current = words or [""]
    command, rest = find_command(previous)
    options = list_options(build_command(command))
    with_value = {flag: option for flag, option in options.items() if not option.is_flag}
    config = _find_config(previous, options)
    flag, equals, value = current.partition("=")
    if not equals or flag not in with_value:
        flag, value = (previous or [""])[-1], current
    if flag in with_value:
        found = _list_option_values(with_value[flag], config)
    elif current.startswith("-"):
        unused = {name: option for name, option in options.items() if name not in previous}
        found = {name: describe_option(option).first_sentence for name, option in unused.items()}
    elif not command and {"--install-completion", "--show-completion"} & {*previous}:
        found = dict.fromkeys(SCRIPTS, "")
    else:
        found = _list_argument_values(command, len(find_prompt_words(rest, command)), config)
    start = current.removesuffix(value)
    return {f"{start}{name}": about for name, about in found.items() if name.startswith(value)}


def _find_config(words: Sequence[str], options: Mapping[str, Any]) -> str | None:
    """Return the configuration that the words name in place of the files that are found; None if they name none."""
    flags = options["--config"].opts if "--config" in options else ()
    split = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return next((value for flag, value in pairwise(split) if flag in flags), None)


def _list_option_values(option: Any, config: str | None) -> Candidates:
    if option.name in _OPTION_VALUES:
        return _OPTION_VALUES[option.name](config)
    return _parse_listed_values(describe_option(option).first_sentence.partition(": ")[2])


def _list_argument_values(command: str, place: int, config: str | None) -> Candidates:
    """Return the values of the argument at a place, counted from 0; the names of commands in place of a command."""
    if not command or command in GROUPS:
        return {} if place else _list_commands(command)
    arguments = [parameter for parameter in build_command(command).params if isinstance(parameter, TyperArgument)]
    if place >= len(arguments):
        return {}
    name = arguments[place].name
    if name == "action":
        return _parse_listed_values((arguments[place].help or "").partition(".")[0])
    values = _ARGUMENT_VALUES.get((command, name))
    return values(config) if values else {}


def _parse_listed_values(text: str) -> Candidates:
    """Return the values that a help text lists, as in "list, show or delete"; none if it is not such a list."""
    words = re.split(r",? or |, ", text)
    return dict.fromkeys(words, "") if all(re.fullmatch(r"[a-z-]+", word) for word in words) else {}


def _list_commands(group: str) -> Candidates:
    """Return the commands of a group, or of the program, each with the first sentence of its help."""
    return {name: describe_command(f"{group} {name}".strip()) for name in sorted(list_command_names(group))}


def print_candidates(shell: str, words: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Print the candidates, one per line, in the form that the shell's script reads; return the exit code."""
    try:
        lines = _format_bash_lines(environment) if shell == "bash" else _format_lines(shell, find_candidates(words))
    except Exception:  # noqa: BLE001 - an error message would appear in the command line that the user is typing
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _format_lines(shell: str, found: Candidates) -> list[str]:
    """Return values with descriptions, one line each, without control characters."""
    pairs = [(value, to_one_line(about, 80)) for value, about in found.items() if value == to_one_line(value, 1000)]
    if shell == "zsh":
        escaped = [(value.replace("\\", "\\\\").replace(":", "\\:"), about) for value, about in pairs]
        return [f"{value}:{about}" if about else value for value, about in escaped]
    return [f"{value}\t{about}" for value, about in pairs]


def _format_bash_lines(environment: Mapping[str, str]) -> list[str]:
    """Return values as bash inserts them: in place of the text after the last word break character."""
    line = environment.get("_DIAL_CHAT_LINE", "")
    words, is_quoted = list[str](), True
    for quote in ("", "'", '"'):
        with suppress(ValueError):  # a quote is open
            words, is_quoted = shlex.split(line + quote), bool(quote)
            break
    if not line or (line[-1].isspace() and not is_quoted):
        words.append("")
    current = words[-1] if len(words) > 1 else ""
    breaks = "" if is_quoted else "".join(set(environment.get("_DIAL_CHAT_BREAKS", ":=")) & {":", "="})
    known = re.match(rf".*[{re.escape(breaks)}]", current) if breaks else None
    start = known.end() if known else 0
    values = [value[start:] for value in find_candidates(words[1:]) if value == to_one_line(value, 1000)]
    if is_quoted:
        # Inside quotes bash inserts a value unchanged: it must not end the quotes or run a command.
        return [value for value in values if not set(value) & set("'\"$`\\!")]
    return [shlex.quote(value) for value in values]


_BASH = r"""# Completion of dial-chat for bash
_dial_chat() {
    local value
    COMPREPLY=()
    while IFS= read -r value; do
        COMPREPLY+=("$value")
    done < <(_DIAL_CHAT_COMPLETE=bash _DIAL_CHAT_LINE="${COMP_LINE:0:COMP_POINT}" \
        _DIAL_CHAT_BREAKS="$COMP_WORDBREAKS" dial-chat 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -o default -F _dial_chat dial-chat
"""
_ZSH = r"""#compdef dial-chat
# Completion of dial-chat for zsh
_dial_chat() {
    local line
    local -a values
    while IFS= read -r line; do
        values+=("$line")
    done < <(_DIAL_CHAT_COMPLETE=zsh dial-chat "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#values} )); then
        _describe -V 'dial-chat' values
    else
        _files
    fi
}
if (( ! ${+functions[compdef]} )); then
    autoload -Uz compinit && compinit
fi
compdef _dial_chat dial-chat
"""
_FISH = r"""# Completion of dial-chat for fish
function __dial_chat
    set -l words (commandline -opc) (commandline -ct | string trim -c "'\"")
    set -l found (env _DIAL_CHAT_COMPLETE=fish dial-chat $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c dial-chat -f -k -a '(__dial_chat)'
"""
_POWERSHELL = r"""# Completion of dial-chat for PowerShell
Register-ArgumentCompleter -Native -CommandName dial-chat -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_".Trim("'", '"') })
    if (-not $wordToComplete) { $words += '""' }
    $env:_DIAL_CHAT_COMPLETE = 'powershell'
    try { $lines = @(& dial-chat @words 2>$null) } finally { Remove-Item Env:_DIAL_CHAT_COMPLETE }
    foreach ($line in $lines) {
        $value, $about = $line -split "`t", 2
        if (-not $about) { $about = $value }
        $text = if ($value -match '^[\w:./@=-]+$') { $value } else { "'" + $value.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $about)
    }
}
"""
SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL}
# Paths of the package bash-completion, which loads the scripts of a folder by itself.
_BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/share/bash-completion/bash_completion",
)


async def set_up_completion(shell: str | None, *, is_installed: bool) -> None:
    """Install the script of the named shell, else of the user's shell; or print it.

    Raises:
        ConfigError: The shell has no script, or a file cannot be written.
    """
    chosen = choose_shell(shell)
    print("\n".join(install(chosen, Path.home())) if is_installed else SCRIPTS[chosen].rstrip())


def choose_shell(name: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the named shell, else the user's shell.

    Raises:
        ConfigError: The shell has no script.
    """
    found = name or Path(environment.get("SHELL", "powershell" if sys.platform == "win32" else "")).stem
    found = "powershell" if found == "pwsh" else found
    if found not in SCRIPTS:
        problem = f"there is no completion for {found!r}" if found else "SHELL is not set"
        raise ConfigError(problem, hint=f"dial-chat --install-completion {' | '.join(SCRIPTS)}")
    return found


def install(shell: str, home: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Install the script of a shell, and return sentences about the changes. A second installation changes nothing.

    Args:
        shell: A key of `SCRIPTS`.
        home: The user's home folder.
        environment: The environment variables, which may name other folders.

    Raises:
        ConfigError: A file cannot be written.
    """
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    settings = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    script = {
        "bash": data / "bash-completion" / "completions" / "dial-chat",
        "zsh": data / "dial-client" / "completion.zsh",
        "fish": settings / "fish" / "completions" / "dial-chat.fish",
        "powershell": data / "dial-client" / "completion.ps1",
    }[shell]
    start, line = _build_start_line(shell, script, home, environment)
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(SCRIPTS[shell], encoding="utf-8", newline="\n")
        sentences = [f"written: {script}"]
        if start is not None and _add_line(start, line):
            sentences.append(f"added to {start}: {line}")
    except OSError as error:
        raise ConfigError(f"{error.filename or script} cannot be written: {error.strerror}") from None
    return [*sentences, f"Completion for {shell} works in the next shell that you open."]


def _build_start_line(shell: str, script: Path, home: Path, environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """Return the start-up file of the shell, and the line to add to it; None as the file if no line is needed."""
    match shell:
        case "bash" if not any(Path(path).exists() for path in _BASH_COMPLETION):
            return home / ".bashrc", f"source '{script}'"
        case "zsh":
            return Path(environment.get("ZDOTDIR") or home) / ".zshrc", f"source '{script}'"
        case "powershell":
            return _find_powershell_profile(), f". '{script}'"
        case _:
            return None, ""


def _add_line(file: Path, line: str) -> bool:
    """Add a line to the end of a file; return False if it has the line already."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    if line in text.splitlines():
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8", newline="\n") as end:
        end.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n")
    return True


def _find_powershell_profile() -> Path:
    """Return the path of the user's PowerShell profile, which PowerShell itself names."""
    for program in ("pwsh", "powershell"):
        try:
            result = subprocess.run(
                [program, "-NoProfile", "-NonInteractive", "-Command", "$PROFILE"],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if result.stdout.strip():
            return Path(result.stdout.strip())
    raise ConfigError("PowerShell cannot be found", hint="dial-chat --show-completion powershell prints the script")
