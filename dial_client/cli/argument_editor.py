"""Editing of a tool call's arguments before the call runs: one argument at a time, as text or as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio.to_thread

from dial_client.cli.command_screen import CommandScreen
from dial_client.cli.input import editor
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.safe_text import escape_unseen, to_one_line
from dial_client.schema.argument_check import ArgumentCheck

MAX_INLINE = 200
"""The maximum characters of a value that is edited in the prompt; longer and multi-line values open the editor."""
MAX_KEYS = 9

Suspended = Callable[[], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def suspend_nothing() -> AsyncGenerator[None, None]:
    """Leave the terminal as it is."""
    yield


async def edit_arguments(
    call: ToolCallRequest, tool: ToolSpec, screen: CommandScreen, suspended: Suspended
) -> ToolCallRequest:
    """Let the user edit an argument until the arguments fit the tool's schema, and return the changed call.

    The call is returned unchanged if it has no arguments, the editor fails, or the user drops the change.

    Args:
        call: The call as the model requested it, or as an earlier edit changed it.
        tool: The tool, whose schema the arguments must fit.
        screen: The screen that asks the questions.
        suspended: Returns a context manager that leaves the terminal to the editor.

    Raises:
        Unanswered: The user pressed Ctrl-C or Ctrl-D.
    """
    name = await _choose(call, screen)
    if name is None:
        return call
    value = call.arguments[name]
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, ensure_ascii=False, indent=2)
    check = ArgumentCheck(tool.original_schema or tool.input_schema)
    while (edited := await _edit(name, text, screen, suspended)) is not None:
        text = edited
        arguments, problem = _replace(call.arguments, name, text, is_text=is_text)
        if not (problems := [problem] if problem else check.find_problems(arguments)):
            return replace(call, arguments=arguments)
        lines = [f"The arguments do not fit: {to_one_line('; '.join(problems), 500)}"]
        keys = {"e": "edit again", "d": "drop the change"}
        key = await screen.ask_key(lines, "[e]dit again  [d]rop the change:", keys)
        if key == "d":
            break
    return call


def _replace(arguments: Mapping[str, Any], name: str, text: str, *, is_text: bool) -> tuple[dict[str, Any], str]:
    """Return the arguments with a new value, and an error text if the value is not JSON."""
    try:
        return {**arguments, name: text if is_text else json.loads(text)}, ""
    except ValueError as error:
        return {}, f"{name} is not JSON: {error}"


async def _choose(call: ToolCallRequest, screen: CommandScreen) -> str | None:
    """Return the name of the argument to change; None if the call has no arguments."""
    names = list(call.arguments)
    if len(names) <= 1:
        return names[0] if names else None
    keys = {str(at): name for at, name in enumerate(names[:MAX_KEYS], 1)}
    shown = "  ".join(f"[{key}] {to_one_line(escape_unseen(name), 30)}" for key, name in keys.items())
    meanings = {key: to_one_line(name, 30) for key, name in keys.items()}
    return keys[await screen.ask_key([shown], "Which argument?", meanings)]


async def _edit(name: str, text: str, screen: CommandScreen, suspended: Suspended) -> str | None:
    """Return the text as the user edited it; None if the editor failed."""
    if len(text) <= MAX_INLINE and text == escape_unseen(text).strip() and "\n" not in text:
        return await screen.ask_line(f"{to_one_line(escape_unseen(name), 30)}:", default=text)
    async with suspended():
        edited = await anyio.to_thread.run_sync(editor.edit, text)
    # `edit` removes the line break that editors add at the end: restore it if the text ended with one.
    return f"{edited}\n" if edited is not None and text.endswith("\n") else edited


def find_changed_arguments(requested: ToolCallRequest, changed: ToolCallRequest) -> Mapping[str, Any] | None:
    """Return the arguments of a changed call; None if they equal the requested arguments."""
    return None if requested.arguments == changed.arguments else changed.arguments
