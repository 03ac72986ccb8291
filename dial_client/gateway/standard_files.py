"""The files of standard input and output, taken for the protocol before anything else can use them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StandardFiles:
    """The descriptors of the files that carry the protocol."""

    input: int
    output: int


def claim_standard_files() -> StandardFiles:
    """Return standard input and output for the protocol alone.

    From now on the process and its children read nothing from standard input, and what they print to standard output
    appears on standard error: a stray `print` cannot break the protocol.
    """
    files = StandardFiles(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with suppress(OSError):  # there is no standard error: what is printed is lost with the protocol's reader
        os.dup2(2, 1)
    return files
