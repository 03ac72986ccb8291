"""Parsing of a command line: the command that it names, the words of a prompt, and mistyped commands."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Container, Iterator, Sequence

from dial_client.cli.commands.typer_commands import GROUPS, build_command, list_command_names, list_options

# The command that a group runs if the command line names none; every group has it.
DEFAULT_COMMAND = "list"


def split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that the arguments name, before or after options, and the other words.

    The command is empty for a prompt. A command of a group is returned with the group's name: ``servers login``.
    """
    command, rest = find_command(words)
    if command not in GROUPS or find_prompt_words(rest) or {"-h", "--help"} & {*rest}:
        return command, rest  # the group itself shows its help, or reports an unknown command
    return f"{command} {DEFAULT_COMMAND}", rest


def find_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that the arguments name, or a group if they name none of its commands, and the other words."""
    command, rest = _take_command(words, list_command_names())
    if command not in GROUPS:
        return command, rest
    subcommand, rest = _take_command(rest, list_command_names(command))
    return f"{command} {subcommand}".strip(), rest


def _take_command(words: Sequence[str], names: Container[str]) -> tuple[str, list[str]]:
    places = find_prompt_words(words)
    is_question = bool(places) and words[places[0]] == "help" and not _is_topic([words[place] for place in places[1:]])
    if places and words[places[0]] in names and not is_question and not has_print_option(words):
        return words[places[0]], [*words[: places[0]], *words[places[0] + 1 :]]
    return "", [*words]


def _is_topic(words: Sequence[str]) -> bool:
    """Return True if words after ``help`` are a topic; else they are the rest of a question: ``help me with taxes``."""
    if len(words) < 2 or words[0] in list_command_names():
        return True
    from dial_client.cli.help_pages import find_pages

    return "-".join(words).lower() in find_pages()


def find_prompt_words(words: Sequence[str], command: str = "") -> list[int]:
    """Return the indexes of the words that are neither options of a command nor their values, up to ``--``."""
    return [index for index, is_option in _sort_words(words, command) if not is_option]


def find_option_words(words: Sequence[str]) -> list[int]:
    """Return the indexes of the options of `dial-chat`, up to ``--``, without those of their values."""
    return [index for index, is_option in _sort_words(words, "") if is_option]


def _sort_words(words: Sequence[str], command: str) -> Iterator[tuple[int, bool]]:
    """Yield the index of each word up to ``--`` that is no value of an option, and whether the word is an option."""
    options = list_options(build_command(command))
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == "--":
            break
        elif word.startswith("-") and len(word) > 1:
            skip = word in options and not options[word].is_flag
            yield index, True
        else:
            yield index, False


def has_print_option(words: Sequence[str]) -> bool:
    """Return True if ``-p`` precedes the first word of a prompt, which then is no command."""
    end = next(iter(find_prompt_words(words)), len(words))
    return any(words[index] in ("-p", "--print") for index in find_option_words(words[:end]))


def is_bare_word(words: Sequence[str]) -> bool:
    """Return True if the prompt is a single word, which may be a mistyped command."""
    places = find_prompt_words(words)
    return (
        "--" not in words
        and not has_print_option(words)
        and len(places) == 1
        and re.fullmatch(r"[A-Za-z][A-Za-z-]{1,30}", words[places[0]]) is not None
    )


def normalize_resume(words: Sequence[str]) -> list[str]:
    """Return the words; ``--resume`` without an id becomes ``--resume=``, which lets the user choose a conversation."""
    return [
        "--resume=" if word == "--resume" and (index + 1 == len(words) or words[index + 1].startswith("-")) else word
        for index, word in enumerate(words)
    ]


# The minimum similarity, from 0 to 1, for a word to count as a mistyped command.
_CUTOFF = 0.75
# Command words of other programs, each with its equivalent here.
_ALIASES = {
    "version": "--version",
    "history": "conversations",
    "sessions": "conversations",
    "chats": "conversations",
    "session": "conversations",
    "logs": "conversations",
    "mcp": "servers",
    "extensions": "servers",
    "configure": "init",
    "resume": "--resume=",
    "continue": "--continue",
    "chat": "",
    "login": "servers login NAME",
    "auth": "servers login NAME",
    "logout": "servers logout NAME",
    "export": "conversations export ID",
    "import": "conversations import FILE",
    "delete": "conversations delete ID",
    "update": "pip install --upgrade dial-client",
    "upgrade": "pip install --upgrade dial-client",
    "setup": "init",
    "check": "doctor",
    "diagnose": "doctor",
}


# Words for "list", and other actions of other programs, each with the action of the command here.
LISTS = ("list", "ls")
_SAME_ACTIONS = {
    ("servers", "get"): "test",
    ("servers", "rm"): "remove",
    ("servers", "delete"): "remove",
    ("conversations", "remove"): "delete",
}


def translate_action(command: str, action: str) -> str:
    """Return the action of a command that means the same as an action of another program."""
    return _SAME_ACTIONS.get((command, action.lower()), "list" if action.lower() in LISTS else action)


def resolve_bare_word(words: Sequence[str]) -> list[str] | None:
    """Return the arguments to run for a prompt of one word, or of a word and an action; None to run nothing.

    A word that resembles no command is a question for the model. For any other word the user is asked in a terminal;
    without a terminal nothing is sent, and a message on standard error names the command.
    """
    place, *further = find_prompt_words(words)
    word = words[place]
    near = find_near_command(word)
    if near is None:
        return [*words]
    prompt = [word, *(words[index] for index in further)]
    actions = [translate_action(near, words[index]) for index in further[:1]]
    meant = [*near.split(), *actions, *prompt[2:]]
    shown = near if near.startswith("pip ") else " ".join(["dial-chat", *meant]).removesuffix("=")
    can_run = near == near.lower() and not near.startswith("pip ")
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if not is_terminal:
        hint = f"did you mean: {shown}; to ask the model: dial-chat -- {' '.join(prompt)}"
        from dial_client.cli.streams.error_stream import report_error

        report_error(f"{word!r} is not a command; {hint}")
        return None
    answer = _ask(word, " ".join(prompt), shown, can_run=can_run)
    if answer == "s":
        return [*(text for index, text in enumerate(words) if index not in (place, *further)), "--", *prompt]
    if answer != "r":
        return None
    changed = [*words]
    for index, action in zip(further, actions, strict=False):
        changed[index] = action
    return [*changed[:place], *near.split(), *changed[place + 1 :]]


def find_near_command(word: str) -> str | None:
    """Return the arguments of the command that a word resembles; None if it resembles none."""
    commands = list_command_names()
    if word.lower() in commands:
        return word.lower()
    if word.lower() in _ALIASES:
        return _ALIASES[word.lower()]
    near = difflib.get_close_matches(word.lower(), [*commands, *_ALIASES], n=1, cutoff=_CUTOFF)
    return _ALIASES.get(near[0], near[0]) if near else None


def _ask(word: str, prompt: str, shown: str, *, can_run: bool) -> str:
    """Return ``r`` to run the command, ``s`` to send the word, or ``q`` to quit."""
    print(f"dial-chat: {word!r} is not a command. Did you mean: {shown}", file=sys.stderr)
    question = f"{'[r]un that, ' if can_run else ''}[s]end {prompt!r} to the model, [q]uit: "
    while True:
        try:
            print(question, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            line = ""
        answer = line.strip().lower()[:1]
        if not line or answer == "q":
            print(file=sys.stderr)
            return "q"
        if answer == "s" or (answer == "r" and can_run):
            return answer
