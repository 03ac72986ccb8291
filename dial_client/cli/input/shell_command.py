"""Commands of the user's shell (``!command``), and their output for the model (``!!``)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

import anyio
import anyio.from_thread
import anyio.to_thread

from dial_client.cli import process_runner
from dial_client.cli.input.terminal_output import run_in_this_terminal, to_plain_text
from dial_client.messages.message import Part, TextPart
from dial_client.runtime.safe_text import to_one_line

MAX_SENT = 30_000
"""The maximum characters of an output for the model; of a longer output, the middle is left out."""


@dataclass(frozen=True, slots=True)
class _Finished:
    """A finished command."""

    command: str
    code: int
    output: str


class ShellCommands:
    """Runs commands in the user's shell, and keeps the output to send with the next message.

    Args:
        suspended: Returns a context in which the command controls the terminal.
    """

    def __init__(self, suspended: Callable[[], AbstractAsyncContextManager[None]] = nullcontext) -> None:
        self._suspended = suspended
        self._last: _Finished | None = None
        self._outputs: list[_Finished] = []

    async def run(self, line: str) -> str:
        """Run the command of a line that begins with ``!``, and return a sentence about it.

        The command controls the terminal, as in a shell. ``!!`` before a command sends its output with the next
        message; ``!!`` alone sends the output of the latest command.
        """
        is_sent = line.startswith("!!")
        command = line.lstrip("!").strip()
        if command:
            async with self._suspended():
                self._last = await _run(command)
        if self._last is None:
            return "!COMMAND runs a command of your shell; !!COMMAND sends its output with your next message, too."
        about = _describe(self._last)
        if not is_sent:
            return f"{about}; !! shows it to the model" if self._last.output else about
        self._outputs = [*(output for output in self._outputs if output is not self._last), self._last]
        return f"{about}: the output of `{to_one_line(self._last.command, 60)}` is sent with your next message"

    @property
    def outputs(self) -> tuple[Part, ...]:
        """The outputs to send with the next message."""
        return tuple(map(_to_part, self._outputs))

    def forget_outputs(self) -> None:
        """Discard the outputs after they were sent."""
        self._outputs = []


def build_shell_arguments(command: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the arguments that run a command in the user's shell."""
    if sys.platform == "win32":
        return [environment.get("COMSPEC", "cmd.exe"), "/d", "/c", command]
    return [*shlex.split(environment.get("SHELL") or "/bin/sh")[:1], "-c", command]


async def _run(command: str) -> _Finished:
    with process_runner.interrupts.ignored():
        code, output = await anyio.to_thread.run_sync(
            run_in_this_terminal, build_shell_arguments(command), anyio.from_thread.check_cancelled
        )
    return _Finished(command, code, to_plain_text(output))


def _describe(finished: _Finished) -> str:
    lines = len(finished.output.splitlines())
    end = f"exit code {finished.code}" if finished.code >= 0 else f"ended by signal {-finished.code}"
    return f"{end}, {lines:,} {'line' if lines == 1 else 'lines'}"


def _to_part(finished: _Finished) -> Part:
    output = finished.output
    if len(output) > MAX_SENT:
        half = MAX_SENT // 2
        output = f"{output[:half]}\n… {len(output) - MAX_SENT:,} characters are left out …\n{output[-half:]}"
    header = f"[output of the user's command `{to_one_line(finished.command, 300)}`, exit code {finished.code}]"
    return TextPart(f"{header}\n{output}\n[end of output]", foreign=True)
