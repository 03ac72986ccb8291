"""The commands that copy answers to the clipboard, write files, and show tool calls and their whole results."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TextIO

import anyio
from anyio import to_thread

from dial_client.cli.chat.chat_session import ChatSession
from dial_client.cli.streams.word_wrap import count_cells, fit
from dial_client.hooks.approval_request import format_argument
from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.messages.message import Role, describe_content
from dial_client.messages.turn_result import ToolCallRecord
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.sinks.turn_display import describe_arguments

_FENCE = re.compile(
    r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)(?:^ {0,3}(?P=fence)[`~]* *$|\Z)",
    re.MULTILINE | re.DOTALL,
)
# The minimum and maximum columns for the arguments of a call in the list of calls.
MIN_ARGUMENTS, MAX_ARGUMENTS = 12, 60


async def copy(session: ChatSession, arguments: str) -> None:
    """Copy the latest answer, the n-th latest answer, or the last block of code to the clipboard."""
    text = await _find_text(session, arguments)
    how = await to_thread.run_sync(copy_to_clipboard, text, os.environ, sys.__stdout__ or sys.stdout)
    if not how:
        too_long = len(text.encode(errors="replace")) > MAX_TERMINAL_BYTES
        why = "it is too long for the terminal's clipboard" if too_long else "no clipboard was found"
        raise ConfigError(f"not copied: {why}", hint="/save FILE writes it to a file")
    session.print(f"Copied {how}: {len(text):,} characters, {to_one_line(text, 50)}")


async def _find_text(session: ChatSession, arguments: str) -> str:
    messages = (await session.manager.get(session.require_id())).messages
    answers = [m.text for m in messages if m.role is Role.ASSISTANT and m.text.strip() and not m.tool_calls]
    if not answers:
        raise ConfigError("there is no answer yet")
    if arguments == "code":
        code = next((blocks[-1] for answer in reversed(answers) if (blocks := find_code(answer))), None)
        if code is None:
            raise ConfigError("no answer has a block of code")
        return code
    number = arguments or "1"
    if not _is_position(number, len(answers)):
        count = len(answers)
        known = f"1 is the latest, {count} the first" if count > 1 else "there is one answer, number 1"
        raise ConfigError(f"there is no answer {to_one_line(number, 20)!r}", hint=f"{known}; or /copy code")
    return answers[-int(number)]


def _is_position(number: str, count: int) -> bool:
    return number.isdecimal() and len(number) <= len(str(count)) and 0 < int(number) <= count


def find_code(text: str) -> list[str]:
    """Return the contents of the fenced blocks of code in Markdown, without the last line break."""
    return [found["code"].removesuffix("\n") for found in _FENCE.finditer(text)]


async def save(session: ChatSession, arguments: str) -> None:
    """Write the latest answer to a file."""
    if not arguments:
        raise ConfigError("missing file name", hint="/save FILE")
    await _write(session, arguments, f"{await _find_text(session, '')}\n")


async def export(session: ChatSession, arguments: str) -> None:
    """Write the whole conversation to a file: Markdown, or JSON if the name ends in .json."""
    conversation_id = session.require_id()
    name = arguments or f"conversation-{conversation_id[:8]}.md"
    is_json = name.lower().endswith(".json")
    await _write(session, name, await session.manager.export(conversation_id, "json" if is_json else "markdown"))


async def _write(session: ChatSession, name: str, text: str) -> None:
    try:
        path = await anyio.Path(name).expanduser()
        is_there = await path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, a user who does not exist
        why = describe_system_error(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot be written: {why}", path=to_one_line(name, 200)) from None
    if is_there:
        keys = {"y": "replace it", "n": "leave it"}
        if await session.screen.ask_key((), f"{to_one_line(name, 200)} exists already. Replace it? [y/n]", keys) != "y":
            session.print("Not written.")
            return
    try:
        await path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot be written: {describe_system_error(error)}", path=to_one_line(name, 200)) from None
    session.print(f"Written: {to_one_line(str(await path.absolute()), 400)} ({len(text):,} characters)")


async def show_calls(session: ChatSession, arguments: str) -> None:  # noqa: ARG001 - a `Run`
    """List the tool calls of the latest turn that has any."""
    background = session.list_background_calls()
    for call in background:
        state = (
            f"{call.progress or 'running'}, {time.monotonic() - call.started_at:.0f} s" if call.is_running else "ended"
        )
        arguments_shown = fit(describe_arguments(call.call.arguments), MAX_ARGUMENTS)
        session.print(f"… {call.name}({arguments_shown})  in the background, {state}")
    records = () if background and not any(turn.tool_calls for turn in session.turns) else _find_records(session)
    width, columns = len(str(len(records))), shutil.get_terminal_size().columns
    lines = []
    for number, record in enumerate(records, 1):
        mark = "…" if record.result.background else "✓" if record.result.success else "✗"
        called = to_one_line(f"{record.server}.{record.tool}" if record.server else record.call.name, 80)
        size = f"{record.duration:.2f} s, {len(describe_content(record.result.content)):,} characters"
        room = columns - width - count_cells(f"  {called}()  {size} ") - 1
        arguments_shown = fit(describe_arguments(record.arguments), max(MIN_ARGUMENTS, min(MAX_ARGUMENTS, room)))
        lines.append(f"{number:>{width}} {mark} {called}({arguments_shown})  {size}")
    session.print("\n".join([*lines, "/last N shows the whole result of a call."]))


async def show_last(session: ChatSession, arguments: str) -> None:
    """Show the whole result of a tool call of the latest turn: the last one, or the n-th."""
    records = _find_records(session)
    number = arguments or str(len(records))
    if not _is_position(number, len(records)):
        raise ConfigError(
            f"there is no call {to_one_line(number, 20)!r}", hint=f"1 to {len(records)}; /calls lists them"
        )
    record = records[int(number) - 1]
    name = to_one_line(f"{record.server}.{record.tool}" if record.server else record.call.name, 120)
    argument_lines = [
        line for argument, value in record.arguments.items() for line in format_argument(str(argument), value)
    ]
    outcome = "" if record.result.success else " failed"
    content = describe_content(record.result.content)
    text = "\n".join([f"{name}{outcome}", *(f"  {line}" for line in argument_lines), "", content])
    await session.screen.page(sanitize(text))


def _find_records(session: ChatSession) -> tuple[ToolCallRecord, ...]:
    records = next((turn.tool_calls for turn in reversed(session.turns) if turn.tool_calls), ())
    if not records:
        raise ConfigError("no tool was called in this run")
    return records


# The maximum bytes of a text for OSC 52: xterm accepts 100,000 characters of Base64 and escape sequence.
MAX_TERMINAL_BYTES = 74_994
# Timeout of a clipboard program in seconds.
_TIMEOUT = 5.0


def copy_to_clipboard(text: str, environment: Mapping[str, str], terminal: TextIO) -> str:
    """Copy a text, and return in a few words how it was copied; empty if it cannot be copied.

    Args:
        text: The text to copy.
        environment: The environment variables, which show the available clipboards.
        terminal: The terminal, which gets the text if no clipboard program works, as over ssh.
    """
    for command in find_programs(environment):
        if _run(command, text):
            return f"by {command[0]}"
    data = text.encode(errors="replace")
    if len(data) > MAX_TERMINAL_BYTES or environment.get("TERM", "dumb") == "dumb" or not terminal.isatty():
        return ""
    terminal.write(to_osc52(data, environment))
    terminal.flush()
    return "through the terminal, if it allows that (OSC 52)"


def find_programs(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the commands that set a clipboard here, the most likely first; over ssh only the command of tmux."""
    candidates: list[list[str]] = []
    if environment.get("TMUX"):
        # tmux ignores OSC 52 of programs by default; with -w it passes the text on to its own terminal.
        candidates.append(["tmux", "load-buffer", "-w", "-"])
    if not environment.get("SSH_CONNECTION"):
        if sys.platform == "darwin":
            candidates.append(["pbcopy"])
        if sys.platform == "win32" or environment.get("WSL_DISTRO_NAME"):
            candidates.append(["clip.exe"])
        if environment.get("WAYLAND_DISPLAY"):
            candidates.append(["wl-copy"])
        if environment.get("DISPLAY"):
            candidates += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
        if environment.get("TERMUX_VERSION"):
            candidates.append(["termux-clipboard-set"])
    return [command for command in candidates if shutil.which(command[0])]


def to_osc52(data: bytes, environment: Mapping[str, str]) -> str:
    """Return the escape sequence that sets the clipboard of the terminal."""
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
    if environment.get("STY"):  # GNU screen passes on a sequence that is wrapped in short pieces
        pieces = (sequence[start : start + 250] for start in range(0, len(sequence), 250))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence


def _run(command: list[str], text: str) -> bool:
    """Run a clipboard program. Its output is not read, because `xclip` and `wl-copy` stay in the background."""
    encoding = "utf-16" if command[0] == "clip.exe" else "utf-8"
    try:
        done = subprocess.run(
            command,
            input=text.encode(encoding, errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
