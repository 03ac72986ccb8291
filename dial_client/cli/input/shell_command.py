"""Commands of the user's shell (``!command``), and their output for the model (``!!``)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass

import anyio
import anyio.from_thread
import anyio.to_thread

from dial_client.cli.streams import process_runner
from dial_client.messages.message import Part, TextPart
from dial_client.runtime.safe_text import sanitize, to_one_line

# The maximum bytes of an output that are kept, from its end.
MAX_KEPT = 1_000_000
# The maximum bytes that are read after the program has ended: they hold its last output, and the limit stops the
# output of programs that it left in the background.
MAX_REST = 65_536
# Seconds between two checks of the terminal's size.
_POLL = 0.2
# A shell script that makes a pseudo-terminal the controlling terminal of a new session by opening it.
_OPEN_TERMINAL = 'exec 0<>"$1" 1>&0 2>&0; shift; exec "$@"'
# The maximum characters of an output for the model; of a longer output, the middle is left out.
MAX_SENT = 30_000


def to_plain_text(output: bytes) -> str:
    """Return an output as the screen finally shows it: without colours and overwritten progress."""
    text = output.decode(errors="replace").replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return sanitize("\n".join(lines)).strip("\n")


def run_in_this_terminal(arguments: list[str], check: Callable[[], None]) -> tuple[int, bytes]:
    """Run a program to its end, and return its exit code and the end of its output.

    If there is a terminal, the program runs in a pseudo-terminal, and only the program gets Ctrl-C. On Windows, and
    without a terminal, the program writes into a pipe.

    Args:
        arguments: The name of the program, and its arguments.
        check: Is called repeatedly; an exception that it raises ends the program.
    """
    if sys.platform == "win32" or not os.isatty(0):
        code, output = _run_with_pipe(arguments)
    else:
        code, output = _run_with_pseudo_terminal(arguments, check)
    if output and not output.endswith(b"\n"):
        _show(b"\n", bytearray())
    return code, output


def _run_with_pipe(arguments: list[str]) -> tuple[int, bytes]:
    kept = bytearray()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), 65536):
            _show(data, kept)
    return process.returncode, bytes(kept)


def _show(data: bytes, kept: bytearray) -> None:
    kept += data
    del kept[:-MAX_KEPT]
    with suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


if sys.platform != "win32":
    import select
    import termios
    import tty

    def _run_with_pseudo_terminal(arguments: list[str], check: Callable[[], None]) -> tuple[int, bytes]:
        ours, theirs = os.openpty()
        terminal_modes, size = termios.tcgetattr(0), termios.tcgetwinsize(0)
        kept = bytearray()
        try:
            termios.tcsetattr(theirs, termios.TCSANOW, terminal_modes)
            termios.tcsetwinsize(theirs, size)
            process = subprocess.Popen(
                ["/bin/sh", "-c", _OPEN_TERMINAL, "sh", os.ttyname(theirs), *arguments],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
            with process:
                try:
                    tty.setraw(0)
                    _copy(ours, process, kept, check)
                finally:
                    if process.poll() is None:
                        process.kill()
            return process.returncode, bytes(kept)
        finally:
            with suppress(OSError, termios.error):  # the terminal may be gone
                termios.tcsetattr(0, termios.TCSADRAIN, terminal_modes)
            os.close(ours)
            os.close(theirs)

    def _copy(
        pseudo_terminal: int, process: subprocess.Popen[bytes], kept: bytearray, check: Callable[[], None]
    ) -> None:
        """Copy keys to the program and its output to the terminal, until the program has ended."""
        size, has_keys, rest = termios.tcgetwinsize(0), True, MAX_REST
        while True:
            check()
            is_running = process.poll() is None
            wait_for = [pseudo_terminal, 0] if has_keys else [pseudo_terminal]
            readable, _, _ = select.select(wait_for, [], [], _POLL if is_running else 0)
            if pseudo_terminal in readable:
                data = os.read(pseudo_terminal, 65536)
                _show(data, kept)
                rest -= 0 if is_running else len(data)
            elif not is_running:
                return
            if rest <= 0:
                return
            if 0 in readable:
                keys = os.read(0, 1024)
                has_keys = bool(keys)
                os.write(pseudo_terminal, keys)
            if size != (size := termios.tcgetwinsize(0)):
                termios.tcsetwinsize(pseudo_terminal, size)


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
