"""The prompt of a one-shot run: the words of the command line, and piped standard input."""

from __future__ import annotations

import os
import select
import stat
import sys

from dial_client.errors import ConfigError

PATIENCE = 3.0
"""Seconds to wait for the first byte of a pipe, where there is a prompt already: an inherited one may never say any."""


def read(prompt: str | None) -> str | None:
    """Return the whole prompt; None where there is a terminal and no prompt.

    Raises:
        ConfigError: nothing was asked, and nobody is there to be asked for it.
    """
    in_terminal = sys.stdin is not None and sys.stdin.isatty()
    piped = "" if in_terminal else _piped(wait=prompt is None).strip()
    question = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if question:
        return question
    if prompt is None and in_terminal:
        return None
    raise ConfigError("there is no question", hint='dial-chat "PROMPT", or pipe one in')


def _piped(*, wait: bool) -> str:
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
