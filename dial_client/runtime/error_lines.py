"""Finds the line that names the error in the output of programs and tools: stack traces, logs, Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

# Maximum number of lines that are joined.
MAX_JOINED = 4

# Lines after an error that do not name it: stack frames, members of the error, the program's version, advice.
_DETAIL = re.compile(
    r"\s*(?:[\s{}()\[\],;^~]*|at .+|File \".+|\.{3} \d+ more|goroutine \d+ .*|exit status \d+"
    r"|Node\.js v[\d.]+|Bun v[\d.]+.*|Emitted '.+' event .*"
    r"|\[?\w+\]?: (?:[\d.-]+|'.*'|\[.*|undefined|null),?"
    r"|.*\.go:\d+(?: \+0x[0-9a-f]+)?|note: .*|For further information visit .*"
    r"|(?:Run|See) '.+'(?: for more information)?\.?|Try .+ for help\.?)\s*"
)
# The margin of the lines of Python's exception groups.
_MARGIN = re.compile(r"[\s|+]+(?:-[-+ \d.]*)?")
# The frame that Typer draws around an error.
_BOX = re.compile(r"^[╭╰]─.*|^│\s*|\s*│$")
# Lines that name an error. A line of a log may start with a time.
_ERROR = re.compile(
    r"\s*(?:Caused by: .+|panic: .+|thread '.*' panicked .*|Exception in thread .+|docker: .+|\u00d7 .+"
    r"|\*\* \([\w.]+\) .+"
    r"|(?:[\w.-]+: )?(?:[Ee]rror|[Ff]atal(?: error)?)(?:\[\w+\])?: .+"
    r"|\[\w+\]: (?!\[|undefined|null).+"
    r"|(?:Uncaught )?[\w.$]*(?:Error|Exception|ExceptionGroup|Rejection)(?: \[\w+\])?(?::.*| \{)?"
    r"|.{0,60}?\b(?:ERROR|CRITICAL|FATAL)\b.*)"
)
_UV_ERROR = "\u00d7"
_TRACEBACK = "Traceback (most recent call last):"
_NPM = re.compile(r"npm (?:error|ERR!) ?(.*)")
_NPM_FIELD = re.compile(r"(?:code|errno|syscall|path|dest|signal|command|A complete log)\b.*|\S*\s*")
# The start of the lines in which uv continues an error.
_TREE = re.compile(r"\s*[╰├]─▶\s*|\s{4,}")
_IS_INCOMPLETE = re.compile(r".*:|.*validation errors? for .+|thread '.*' panicked .*")
# Headings, rules and fences.
_MARKDOWN = re.compile(r"#{1,6}\s.*|[=\-*_]{3,}|[`~]{3,}\w*|>+")


def find_error_line(lines: Sequence[str]) -> str:
    """Return the error in the last lines that a program wrote: the last line that names an error, else the last line.

    Stack frames, braces and versions are skipped. A line that ends in a colon is joined with the next line. Without
    lines the result is empty.
    """
    if npm := _find_npm_error(lines):
        return npm
    plain = [_without_margin(line) for line in lines]
    found = max(_find_last_error(plain), _find_exception(plain))
    if found < 0:
        found = max((index for index, line in enumerate(plain) if not _DETAIL.fullmatch(line)), default=-1)
    return _join(plain, found) if found >= 0 else "".join(lines[-1:])


def summarize_error(text: str) -> str:
    """Return the first line of a tool's error; if it ends in a colon, it is joined with the next line.

    Headings, rules and fences of Markdown are skipped, unless the text has nothing else.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not _MARKDOWN.fullmatch(line)] or [line.lstrip("# ") for line in lines]
    end = next((index for index, line in enumerate(telling) if not line.endswith((":", ":**"))), len(telling))
    return " ".join(telling[: min(end + 1, MAX_JOINED)])


def _without_margin(line: str) -> str:
    margin = _MARGIN.match(line) if line.lstrip().startswith(("|", "+-")) else None
    return _BOX.sub("", line[len(margin[0]) :] if margin else line).rstrip()


def _find_last_error(lines: Sequence[str]) -> int:
    """Return the index of the last line that names an error; -1 if there is none."""
    return max((index for index, line in enumerate(lines) if _ERROR.fullmatch(line)), default=-1)


def _find_exception(lines: Sequence[str]) -> int:
    """Return the index of the line with the exception of the last Python traceback; -1 if there is none."""
    start = max((index for index, line in enumerate(lines) if line == _TRACEBACK), default=len(lines))
    following = range(start + 1, len(lines))
    return next((index for index in following if lines[index] and not lines[index].startswith(" ")), -1)


def _find_npm_error(lines: Sequence[str]) -> str:
    """Return the first sentence of npm's error; empty if npm did not write the last line."""
    if not lines or not _NPM.match(lines[-1]):
        return ""
    errors = (found[1].strip() for line in lines if (found := _NPM.match(line)))
    return next((f"npm error {error}" for error in errors if not _NPM_FIELD.fullmatch(error)), "")


def _join(lines: Sequence[str], start: int) -> str:
    """Return a line, joined with the following lines as long as the sentence continues."""
    joined = [lines[start].strip()]
    is_tree = joined[0].startswith(_UV_ERROR)
    for line, following in pairwise(lines[start:]):
        is_next = bool(_TREE.match(following)) if is_tree else bool(_IS_INCOMPLETE.fullmatch(line.rstrip()))
        is_detail = len(joined) == 2 and "validation error" in joined[0]
        if not (is_next or is_detail) or len(joined) == MAX_JOINED or _DETAIL.fullmatch(following):
            break
        joined.append(_TREE.sub("", following, count=1).strip())
    return " ".join(joined).removesuffix(" {").removeprefix(f"{_UV_ERROR} ").removeprefix("[cause]: ")
