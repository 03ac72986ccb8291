"""The prompt of a one-shot run: the words of the command line, and piped standard input."""

from __future__ import annotations

import codecs
import os
import select
import stat
import sys
from pathlib import Path

from dial_client.messages.errors import ConfigError

# Seconds to wait for piped input if there is a prompt already: an inherited pipe may never send any.
PATIENCE = 3.0


def read(prompt: str | None, file: Path | None = None, *, is_required: bool = False) -> str | None:
    """Return the whole prompt; None if there is a terminal and no prompt.

    Args:
        prompt: The prompt of the command line; ``-`` reads standard input to its end, even from a terminal.
        file: A file with a prompt; its text is put between `prompt` and piped input.
        is_required: Whether a terminal without a prompt is an error.

    Raises:
        ConfigError: A question is required but empty, or the file cannot be read.
    """
    reads_to_end = prompt == "-" or file == Path("-")
    in_terminal = sys.stdin.isatty()
    if reads_to_end:
        piped = _decode(sys.stdin.buffer.read())
    else:
        piped = "" if in_terminal else _read_pipe(wait=prompt is None and file is None)
    words = prompt if prompt and prompt != "-" else ""
    written = _read_file(file) if file is not None and file != Path("-") else ""
    question = "\n\n".join(part for part in (words, written, piped.strip()) if part.strip())
    is_required = is_required or reads_to_end or not in_terminal or prompt is not None or file is not None
    if not question and is_required:
        raise ConfigError("no prompt given", hint='dial-chat "PROMPT", or pipe one in')
    return question or None


def _read_file(file: Path) -> str:
    try:
        return _decode(file.read_bytes()).strip()
    except OSError as error:
        raise ConfigError(f"the prompt cannot be read: {error.strerror}", path=str(file)) from None


def _read_pipe(*, wait: bool) -> str:
    descriptor = sys.stdin.fileno()
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISCHR(mode):
        return ""
    if not wait and not stat.S_ISREG(mode) and sys.platform != "win32":
        readable, _, _ = select.select([descriptor], [], [], PATIENCE)
        if not readable:
            return ""
    return _decode(sys.stdin.buffer.read())


def _decode(data: bytes) -> str:
    """Return a text in UTF-8, or in UTF-16 or UTF-32 with its mark, as PowerShell writes it.

    Raises:
        ConfigError: The text has NUL bytes, as text in UTF-16 without its mark has.
    """
    wide = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}  # before UTF-16: its mark begins like that
    wide |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    encoding = next((name for mark, name in wide.items() if data.startswith(mark)), "utf-8-sig")
    text = data.decode(encoding, errors="replace")
    if "\0" in text:
        raise ConfigError("the prompt is not text in UTF-8", hint="UTF-16 is read if it begins with a byte order mark")
    return text
