"""References in the user's input: resources (``@server:uri``), files (``@path``) and prompts (``/server:prompt``)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from dial_client.cli.input.file_mentions import find_file_mentions, find_problem, read_files
from dial_client.cli.streams.error_stream import print_notes, report_error
from dial_client.cli.streams.tty import UserInput
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError, ServerError
from dial_client.messages.message import Message, Part, Role, TextPart
from dial_client.tools.prompts import Prompt
from dial_client.turns.mentions import list_agents, split_mentions


async def with_attachments(dial: DialClient, user_input: UserInput, within: Path | None = None) -> str | Message:
    """Return the message of an input: its text, and the resources and files that it mentions.

    A warning names each resource that cannot be attached. With `within`, files must be in that folder.

    Raises:
        ConfigError: A mentioned file cannot be attached.
    """
    # The agents that the text names at its start are no files.
    _, text = split_mentions(user_input.typed, list_agents(dial.tools))
    mentions = find_file_mentions(text, dial.servers)
    if problem := find_problem(mentions, within):
        raise ConfigError(problem)
    files = await anyio.to_thread.run_sync(read_files, mentions) if mentions else []
    attached = await dial.attach(user_input.typed)
    print_notes(attached.notes)
    content = attached.message.content
    resources = () if isinstance(content, str) else content[1:]
    parts = (*resources, *files, *user_input.attachments)
    return replace(attached.message, content=(TextPart(user_input.text), *parts)) if parts else user_input.text


async def build_prompt_message(dial: DialClient, line: str) -> Message | None:
    """Return the message of ``/server:prompt arg=value``; None, with a warning, if that fails."""
    try:
        return await request_prompt(dial, line)
    except (ConfigError, ServerError) as error:
        report_error(str(error))
        return None


async def request_prompt(dial: DialClient, line: str) -> Message:
    """Return the message of ``/server:prompt arg=value``.

    Without any ``arg=``, the whole text after the name is the first argument.

    Raises:
        ConfigError: There is no such prompt, or its arguments are wrong.
        ServerError: The server did not answer.
    """
    prompt, rest = _find_prompt(await dial.prompts.list(), line)
    return merge_messages(await dial.prompts.get(prompt.server, prompt.name, _parse_arguments(prompt, rest)))


def _find_prompt(prompts: Iterable[Prompt], line: str) -> tuple[Prompt, str]:
    """Return the prompt that the line names, and the text after its name."""
    named = {f"/{prompt.server}:{prompt.name}": prompt for prompt in prompts}
    name = max((name for name in named if f"{line} ".startswith(f"{name} ")), key=len, default=None)
    if name is None:
        raise ConfigError(f"there is no prompt {line.split(maxsplit=1)[0]}: /prompts lists them")
    return named[name], line.removeprefix(name).strip()


def _parse_arguments(prompt: Prompt, rest: str) -> dict[str, str]:
    """Return the arguments of a prompt.

    Raises:
        ConfigError: They are invalid.
    """
    names = [argument.name for argument in prompt.arguments]
    try:
        words = shlex.split(rest)
    except ValueError:
        raise ConfigError("a quotation mark is not closed") from None
    pairs = [word.partition("=") for word in words]
    if names and rest and not any(equals and name in names for name, equals, _ in pairs):
        values = {names[0]: rest}
    else:
        values = {name: value for name, _, value in pairs}
    takes = ", ".join(names) or "nothing"
    if wrong := [name for name in values if name not in names]:
        raise ConfigError(f"{prompt.name} has no argument {wrong[0]}: it takes {takes}")
    if missing := [argument.name for argument in prompt.arguments if argument.required and argument.name not in values]:
        example = f"/{prompt.server}:{prompt.name} {missing[0]}=…"
        raise ConfigError(f"{prompt.name} needs {', '.join(missing)}: {example}")
    return values


def merge_messages(messages: Sequence[Message]) -> Message:
    """Merge the messages of a prompt into one user message, in which messages of the assistant are marked."""
    parts: list[Part] = []
    taint = next((message.taint for message in messages if message.taint), "")
    for message in messages:
        mark = "Assistant: " if message.role is Role.ASSISTANT else ""
        content = (TextPart(message.content),) if isinstance(message.content, str) else message.content
        parts += [TextPart(mark + part.text) if isinstance(part, TextPart) else part for part in content]
    if all(isinstance(part, TextPart) for part in parts):
        text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
        return Message(Role.USER, text, taint=taint)
    return Message(Role.USER, tuple(parts), taint=taint)
