"""The prompt of a one-shot run: the words of the command line, and piped standard input."""

from __future__ import annotations

import os
import select
import stat
import sys
from pathlib import Path

from dial_client.messages.errors import ConfigError

# Seconds to wait for piped input if there is a prompt already: an inherited pipe may never send any.
PATIENCE = 3.0


def read(prompt: str | None, file: Path | None = None) -> str | None:
    """Return the whole prompt; None if there is a terminal and no prompt.

    Args:
        prompt: The prompt of the command line; ``-`` reads standard input to its end, even from a terminal.
        file: A file with a prompt; its text is put between `prompt` and piped input.

    Raises:
        ConfigError: A question is required but empty, or the file cannot be read.
    """
    reads_to_end = prompt == "-" or file == Path("-")
    in_terminal = sys.stdin is not None and sys.stdin.isatty()
    if reads_to_end:
        piped = "" if sys.stdin is None else sys.stdin.buffer.read().decode(errors="replace")
    else:
        piped = "" if in_terminal else _read_pipe(wait=prompt is None and file is None)
    words = prompt if prompt and prompt != "-" else ""
    written = _read_file(file) if file is not None and file != Path("-") else ""
    question = "\n\n".join(part for part in (words, written, piped.strip()) if part.strip())
    if not question and (reads_to_end or not in_terminal or prompt is not None or file is not None):
        raise ConfigError("no prompt given", hint='dial-chat "PROMPT", or pipe one in')
    return question or None


def _read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig", errors="replace").strip()
    except OSError as error:
        raise ConfigError(f"the prompt cannot be read: {error.strerror}", path=str(file)) from None


def _read_pipe(*, wait: bool) -> str:
    if sys.stdin is None:
        return ""
    descriptor = sys.stdin.fileno()
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISCHR(mode):
        return ""
    if not wait and not stat.S_ISREG(mode) and sys.platform != "win32":
        readable, _, _ = select.select([descriptor], [], [], PATIENCE)
        if not readable:
            return ""
    return sys.stdin.buffer.read().decode(errors="replace")
