"""References in a person's input: resources to attach (``@server:uri``) and prompts (``/server:prompt``)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from dial_client.cli.bootstrap import say_notes, warn
from dial_client.client.dial_client import DialClient
from dial_client.errors import ServerError
from dial_client.messages import Message, Part, Role, TextPart
from dial_client.tools.prompts import Prompt


async def with_resources(dial: DialClient, question: str, typed: str) -> str | Message:
    """Return the question with the resources it refers to; a warning names those that cannot be attached.

    Args:
        dial: has the servers.
        question: the whole question.
        typed: the part of it that a person typed: what is piped in names nothing, whoever wrote it.
    """
    attached = await dial.attach(typed)
    say_notes(attached.notes)
    content = attached.message.content
    return (
        question if isinstance(content, str) else replace(attached.message, content=(TextPart(question), *content[1:]))
    )


async def prompt_called(dial: DialClient, line: str) -> Message | None:
    """Return the message of ``/server:prompt arg=value``; None, with a warning, where that is not possible.

    Without any ``arg=`` all that follows is the first argument.
    """
    try:
        found = await _prompt(dial, line)
        if found is None:
            return None
        prompt, rest = found
        given = _arguments(prompt, rest)
        return None if given is None else as_one(await dial.prompts.get(prompt.server, prompt.name, given))
    except ServerError as error:
        warn(str(error))
        return None


async def _prompt(dial: DialClient, line: str) -> tuple[Prompt, str] | None:
    """Return the prompt that the line refers to, and the text behind its name."""
    name = line.split(maxsplit=1)[0]
    prompts = [
        prompt for prompt in await dial.prompts.list() if f"{line} ".startswith(f"/{prompt.server}:{prompt.name} ")
    ]
    if not prompts:
        warn(f"there is no prompt {name}: /prompts lists them")
        return None
    prompt = max(prompts, key=lambda prompt: len(f"{prompt.server}:{prompt.name}"))
    return prompt, line[len(f"/{prompt.server}:{prompt.name}") :].strip()


def _arguments(prompt: Prompt, rest: str) -> dict[str, str] | None:
    """Return the arguments of a prompt; None, with a warning, where they do not fit."""
    names = [argument.name for argument in prompt.arguments]
    try:
        words = shlex.split(rest)
    except ValueError:
        warn("a quotation mark is not closed")
        return None
    pairs = [word.partition("=") for word in words]
    if names and rest and not any(equals and name in names for name, equals, _ in pairs):
        given = {names[0]: rest}
    else:
        given = {name: value for name, _, value in pairs}
    takes = ", ".join(names) or "nothing"
    if wrong := [name for name in given if name not in names]:
        warn(f"{prompt.name} has no argument {wrong[0]}: it takes {takes}")
        return None
    if missing := [argument.name for argument in prompt.arguments if argument.required and argument.name not in given]:
        warn(f"{prompt.name} needs {', '.join(missing)}: /{prompt.server}:{prompt.name} {missing[0]}=…")
        return None
    return given


def as_one(messages: Sequence[Message]) -> Message:
    """Return the messages of a prompt as one message of the user; those of the assistant are marked."""
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
