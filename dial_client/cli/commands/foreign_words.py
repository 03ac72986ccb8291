"""Options and commands of other programs for chats: those that mean the same here, and what to type in place of others.

The programs are Claude Code, Codex, goose, llm and Gemini CLI.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dial_client.cli.commands.command_line import (
    LISTS,
    find_near_command,
    find_option_words,
    find_prompt_words,
    has_print_option,
    normalize_resume,
    translate_action,
)

# Options that mean the same here, each with the words that replace it.
_SAME_OPTIONS = {
    "--json": ("--output", "json"),
    "--output-format": ("--output",),
    "--system-prompt": ("--system",),
    "--max-turns": ("--max-depth",),
    "-r": ("--resume",),
    "--cid": ("--resume",),
    "--conversation": ("--resume",),
    "--session-id": ("--resume",),
    "--last": ("--continue",),
    "--no-log": ("--no-save",),
}
_SAME_VALUES = {"stream-json": "jsonl", "json-stream": "jsonl"}

# Other options of these programs, each with what to type here.
_HINTS = {
    "--dangerously-skip-permissions": "-y",
    "--dangerously-bypass-approvals-and-sandbox": "-y",
    "--yolo": "-y",
    "--full-auto": "--mode auto",
    "--permission-mode": "--mode ask, read, plan or auto",
    "--ask-for-approval": "--mode ask, read, plan or auto",
    "--allowedTools": "--allow 'SERVER/TOOL'",
    "--allowed-tools": "--allow 'SERVER/TOOL'",
    "--disallowedTools": "--deny 'SERVER/TOOL'",
    "--disallowed-tools": "--deny 'SERVER/TOOL'",
    "--mcp-config": "--config FILE",
    "--with-extension": "--server NAME=COMMAND",
    "--append-system-prompt": "--system TEXT",
    "-s": "--system TEXT",
    "--fork-session": "/fork in a conversation",
    "-t": "-p TEXT",
    "--text": "-p TEXT",
    "-i": "-f FILE",
    "--instructions": "-f FILE",
    "-a": "@FILE in the question",
    "--attachment": "@FILE in the question",
    "--image": "@FILE in the question",
    "--json-schema": "--schema FILE",
    "--output-schema": "--schema FILE",
    "-o": "> FILE after the question",
    "--output-last-message": "> FILE after the question",
    "--oss": "-m local, or -m ollama:ID",
    "-C": "cd FOLDER first",
    "--cd": "cd FOLDER first",
    "-u": "-v",
    "--usage": "-v",
}

# First words of commands, each with the command of the same kind here.
_SAME_COMMANDS = {
    "mcp": "servers",
    "server": "servers",
    "extensions": "servers",
    "model": "models",
    "session": "conversations",
    "sessions": "conversations",
    "chats": "conversations",
}
# The first word that begins no English sentence: what follows it is an action.
_NO_ENGLISH = "mcp"
_ACTIONS = frozenset(
    [
        "list",
        "ls",
        "add",
        "remove",
        "rm",
        "get",
        "show",
        "delete",
        "export",
        "import",
        "test",
        "search",
        "login",
        "logout",
        "enable",
        "disable",
    ]
)
_WITH_ACTIONS = ("servers", "conversations", "models", "config", "policy", "audit")
# Commands that ask one question.
_ASK = ("exec", "prompt")
# The most words of a command in an unquoted question.
_MAX_WORDS = 3


def translate_options(words: Sequence[str]) -> list[str]:
    """Return the words of a chat with this program's options in place of the same options of other programs."""
    options = {*find_option_words(words)}
    translated = list[str]()
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if index in options and name in _SAME_OPTIONS:
            translated += [*_SAME_OPTIONS[name], *([value] if equals else [])]
        else:
            translated.append(word)
        if len(translated) > 1 and translated[-2] == "--output":
            translated[-1] = _SAME_VALUES.get(translated[-1], translated[-1])
    return normalize_resume(translated)


def find_hint(words: Sequence[str]) -> str:
    """Return the sentence on an option of another program, which says what to type; empty if there is none."""
    for index in find_option_words(words):
        name, _, value = words[index].partition("=")
        if name in _HINTS:
            return f"{name} is not an option here; type {_HINTS[name]}"
        if name == "-c":
            value = value or "".join(words[index + 1 : index + 2])
            if not value or value.startswith("-") or (" " in value and not Path(value).exists()):
                return "-c names a configuration file; to continue the latest conversation, type --continue"
    return ""


def translate_command(words: Sequence[str]) -> list[str]:
    """Return the words of a chat with this program's command in place of the same command of another program.

    Only what can hardly be a question is a command: ``mcp`` with an action, two words such as ``server list``, and
    ``server add`` with a program after ``--``. For ``model test results`` and ``session delete it``, see
    `is_misspelled_command`; ``server list of the office`` is a question.
    """
    places = find_prompt_words(words)
    if has_print_option(words) or len(places) < 2:
        return [*words]
    first, second = (words[place].lower() for place in places[:2])
    changed = [*words]
    if first in _ASK and len(places) == 2 and " " in second:
        return [*words[: places[0]], "-p", *words[places[0] + 1 :]]
    command = _SAME_COMMANDS.get(first)
    is_clear = (
        (first == _NO_ENGLISH and second in _ACTIONS)
        or (len(places) == 2 and second in LISTS)
        or (command == "servers" and second == "add" and "--" in words)
    )
    if command is not None and is_clear:
        changed[places[0]] = command
        changed[places[1]] = translate_action(command, second)
    return changed


def is_misspelled_command(words: Sequence[str]) -> bool:
    """Return True if a few words are similar to a command with an action: ``modles list``, ``session delete it``.

    They may be a question as well, so that they are neither sent nor run without a question to the user.
    """
    places = find_prompt_words(words)
    if len(places) < 2 or has_print_option(words) or not is_action(words):
        return False
    return find_near_command(words[places[0]]) in _WITH_ACTIONS


def is_action(words: Sequence[str]) -> bool:
    """Return True if the second of a few words is an action of a command."""
    places = find_prompt_words(words)
    if not 2 <= len(places) <= _MAX_WORDS:
        return False
    action = words[places[1]].lower()
    return action in _ACTIONS and (len(places) == 2 or action not in LISTS)
