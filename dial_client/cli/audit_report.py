"""The audit log of ``dial-chat``: opens it for a client, and prints it for ``dial-chat audit``."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import platformdirs

from dial_client.cli.options import ExitCode, Options
from dial_client.cli.streams.error_stream import warn
from dial_client.hooks.audit.log_writer import AuditLog
from dial_client.hooks.audit.record_format import build_mask, list_log_files
from dial_client.hooks.audit.verification import Line, read_lines, verify
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.secret_masking import find_secrets
from dial_client.settings.config_types import Settings

# The environment variable with the mode of the audit log: ``off``, ``on`` or ``arguments``.
#
# servers.json has no such key, because a project must not be able to switch the log off.
VARIABLE = "DIAL_AUDIT"
_MODES = ("on", "off", "arguments")
_KEY_ENDINGS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


def find_audit_folder() -> Path:
    """Return the folder of the user's audit log."""
    return Path(platformdirs.user_state_dir("dial-client"), "audit")


def open_audit_log(options: Options, settings: Settings) -> AuditLog | None:
    """Return the user's audit log, whose files are created with its first entry; None if the log is switched off.

    Raises:
        ConfigError: The environment variable has an unknown value.
    """
    mode = os.environ.get(VARIABLE) or "on"
    if mode not in _MODES:
        raise ConfigError(f"unknown {VARIABLE} {mode!r}", hint=f"one of {', '.join(_MODES)}")
    if options.no_audit or mode == "off":
        return None
    return AuditLog(
        find_audit_folder(),
        program=options.command,
        with_arguments=options.audit_arguments or mode == "arguments",
        mask=build_mask(_collect_secrets(settings)),
        on_problem=warn,
    )


def _collect_secrets(settings: Settings) -> Iterator[str]:
    """Yield the known secrets: those in the entries of servers, and keys, tokens and passwords of the environment."""
    for server in settings.servers.values():
        yield from find_secrets(server)
    yield from (value for name, value in os.environ.items() if name.upper().endswith(_KEY_ENDINGS))


# Seconds between two checks for new lines.
_LOOK_EVERY = 0.2
_MAX_NAME = 120
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_EVENTS = ("decision", "call", "elicitation", "sampling")


# Returns True if an entry of the audit log is selected.
Matches = Callable[[Mapping[str, Any]], bool]


def build_filter(server: str, tool: str, since: str, conversation: str) -> Matches:
    """Return the function that selects entries. Patterns are those of `fnmatch`; an empty text selects every entry.

    Args:
        server: A pattern of names of servers.
        tool: A pattern of names of tools.
        since: An ISO 8601 date or time, local if it has no time zone; or an age, such as ``90m``, in s, m, h or d.
        conversation: The id of a conversation, or its beginning.

    Raises:
        ConfigError: `since` is not a time.
    """
    earliest = _parse_time(since)

    def matches(fields: Mapping[str, Any]) -> bool:
        return (
            fields.get("event") in _EVENTS
            and fnmatchcase(str(fields.get("server", "")), server or "*")
            and fnmatchcase(str(fields.get("tool", "")), tool or "*")
            and str(fields.get("conversation", "")).startswith(conversation)
            and str(fields.get("time", "")) >= earliest
        )

    return matches


async def show(folder: Path | None, matches: Matches, lines: int | None, *, as_json: bool) -> None:
    """Print the selected entries, the oldest first; with `lines` only the last ones."""
    found = (line.fields for line in read_lines(_find_log_folder(folder)) if line.fields and matches(line.fields))
    for fields in found if lines is None else deque(found, maxlen=lines):
        _print(fields, as_json=as_json)


async def tail(folder: Path | None, matches: Matches, lines: int, *, follow: bool, as_json: bool) -> None:
    """Print the last selected entries, and with `follow` new entries until the program is interrupted."""
    log_folder = folder or find_audit_folder() if follow else _find_log_folder(folder)
    read = partial(next, _read_on(log_folder, matches))
    for fields in deque(iter(read, None), maxlen=lines):
        _print(fields, as_json=as_json)
    while follow:
        sys.stdout.flush()
        await anyio.sleep(_LOOK_EVERY)
        for fields in iter(read, None):
            _print(fields, as_json=as_json)


async def check(folder: Path | None, head: str, *, as_json: bool) -> int:
    """Verify the hash chain of the log, print the result, and return 1 if it is broken or lacks the digest `head`."""
    log_folder = _find_log_folder(folder)
    result = verify(log_folder, head.removeprefix("sha256:"))
    if as_json:
        print(json.dumps(asdict(result) | {"intact": result.is_intact}, indent=2))
    else:
        files = count_noun(result.files, "file")
        begin, end = _to_local(result.first_time), _to_local(result.last_time)
        print(f"{log_folder}: {result.lines} lines in {files}, {begin} to {end}")
        for note in result.notes:
            print(f"note: {note}")
        if result.torn:
            print(f"note: {result.torn} torn lines, each from a program that ended while it wrote the line")
        if result.problem:
            print(f"BROKEN: {result.problem_file}, line {result.problem_line}: {result.problem}")
        if result.has_head is False:
            print("BROKEN: the digest is not in the log: lines were removed from the end, or the log was rewritten")
        if result.is_intact:
            print(f"The chain is unbroken. Its head: {result.head}")
    return ExitCode.ANSWERED if result.is_intact else ExitCode.UNEXPECTED


def _parse_time(since: str) -> str:
    """Return a time in the format of the log; an empty text for an empty `since`."""
    if not since:
        return ""
    if match := re.fullmatch(r"(\d{1,6})([smhd])", since):
        begin = datetime.now(UTC) - timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    else:
        try:
            begin = datetime.fromisoformat(since).astimezone(UTC)
        except (ValueError, OverflowError):
            raise ConfigError(f"{since!r} is not a time", hint="like 2026-11-22, 2026-11-22T17:00, 90m") from None
    return f"{begin:%Y-%m-%dT%H:%M:%S}.{begin.microsecond // 1000:03}Z"


def _to_local(time: str) -> str:
    """Return a time of the log in the zone of the user, as `--since` takes it; unchanged if it is no time."""
    try:
        return datetime.fromisoformat(time).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return time


def _find_log_folder(folder: Path | None) -> Path:
    log_folder = folder or find_audit_folder()
    if not list_log_files(log_folder):
        warn(f"there is no audit log in {log_folder}")
    return log_folder


def _read_on(folder: Path, matches: Matches) -> Iterator[dict[str, Any] | None]:
    """Yield the selected records of a log, then None, then those that were added since, and so on.

    An incomplete last line is left for a later read.
    """
    name, offset = "", 0
    while True:
        for path in list_log_files(folder):
            if path.name > name:
                name, offset = path.name, 0
            if path.name == name:
                with path.open("rb") as file:
                    file.seek(offset)
                    for text in file:
                        if not text.endswith(b"\n"):
                            break
                        offset += len(text)
                        fields = Line(path, 0, text, is_whole=True).fields
                        if fields is not None and matches(fields):
                            yield fields
        yield None


def _print(fields: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(fields))
        return

    def show(name: str, limit: int, form: str = "{}") -> str:
        return form.format(to_one_line(str(fields[name]), limit)) if name in fields else ""

    verdict = to_one_line(str(fields.get("decision") or fields.get("outcome") or "?"), 20)
    details = [
        show("decided_by", 200, "by {}"),
        show("duration_s", 30, "{} s"),
        show("result_bytes", 30, "{} bytes"),
        show("owner", _MAX_NAME, "person {}"),
        show("client", _MAX_NAME, "client {}"),
        show("agent", _MAX_NAME, "agent {}"),
        show("conversation", 60, "conversation {}"),
    ]
    words = [
        to_one_line(_to_local(str(fields.get("time", ""))), 30),
        f"{show('event', 20):<8} {verdict:<10}",
        f"{show('server', _MAX_NAME) or 'host'}/{show('tool', _MAX_NAME)}",
        *filter(None, details),
    ]
    print("  ".join(words))
    if "arguments" in fields:
        print(f"    {sanitize(json.dumps(fields['arguments']))}")
