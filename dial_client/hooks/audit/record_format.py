"""The format of the audit log: each line is a JSON object with its digest and the digest of the previous line.

A line ends in ``,"digest":"<hex>"}``: the SHA-256 of the line's bytes without that member. ``previous`` is the digest
of the previous line, also if that is in another file; ``n`` counts lines from 1. The first line of a file has the event
``begin`` and the name of the previous file; the last line of a full file has the event ``end`` and the name of the next
file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from dial_client.hooks.audit.entries import AuditEntry

# The version of the format, in each line with the event ``begin``.
FORMAT = 1
# The most characters of recorded arguments as JSON; of longer arguments only the digest is recorded.
MAX_ARGUMENTS = 64 * 1024
# The most characters of a name from a server or model.
_MAX_NAME = 300
# The members of a line that are texts, in the order of `build_fields`.
_TEXTS = (
    *("event", "id", "conversation", "turn", "owner", "client", "agent", "call", "server", "tool"),
    *("decision", "decided_by", "outcome"),
)
# The numbers of a time as two digits: to format each takes longer than all else of a time.
_TWO = tuple(f"{number:02}" for number in range(60))
# Those of them that are names from a server, a model or a client, and are cut.
_NAMES = frozenset(("owner", "client", "agent", "call", "server", "tool", "decided_by"))
_COMPACT = json.JSONEncoder(separators=(",", ":"))
# The types whose JSON is the same from each encoder, if all characters are ASCII.
_PLAIN = frozenset((str, int, bool, type(None)))
_TEXT = frozenset((str,))
_CANONICAL = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
_SEAL = re.compile(rb',"digest":"([0-9a-f]{64})"\}')
_SEAL_BYTES = 77
_FILE_NAME = re.compile(r"audit-(\d{6,12})\.jsonl")

# Returns a text with known secrets masked.
Mask = Callable[[str], str]


def seal(fields: Mapping[str, Any]) -> bytes:
    """Return the line of a record, with its digest and a line feed."""
    body = _encode(fields) or _COMPACT.encode(fields).encode()
    digest = hashlib.sha256(body).hexdigest()
    return b'%b,"digest":"%b"}\n' % (body[:-1], digest.encode())


def unseal(line: bytes) -> dict[str, Any]:
    """Return the record of a line, which is passed without its line feed.

    Raises:
        ValueError: The line does not match its digest, or is not a record.
    """
    found = _SEAL.fullmatch(line[-_SEAL_BYTES:])
    if found is None:
        raise ValueError("the line has no digest")
    if hashlib.sha256(line[:-_SEAL_BYTES] + b"}").hexdigest() != found[1].decode():
        raise ValueError("the digest does not match the line")
    try:
        fields = json.loads(line)
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("n"), int):
        raise ValueError("the line is not a record")  # noqa: TRY004 - the content is wrong, not the argument's type
    return fields


def compute_digest(value: object) -> str:
    """Return ``sha256:<hex>`` of a value's canonical JSON (sorted keys, no spaces, ASCII), or ``unknown``.

    In Python: ``sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())``.
    """
    data = b""
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        data = _encode(dict(sorted(value.items())))
    try:
        data = data or _CANONICAL.encode(value).encode()
    except (TypeError, ValueError, RecursionError):
        return "unknown"
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@cache
def _find_encoder() -> Callable[[object], bytes]:
    from pydantic_core import to_json  # not needed to read a log, and loaded already where servers are called

    return to_json


def _encode(fields: Mapping[str, Any]) -> bytes:
    """Return compact JSON in a third of the time that `json` takes; empty if a character has to be escaped.

    Whatever is not ASCII is escaped in the log: nothing in it may be invisible, or look like something else.
    """
    try:
        data = _find_encoder()(fields)
    except ValueError:  # lone surrogates
        return b""
    return data if data.isascii() and 0x7F not in data else b""


def build_fields(entry: AuditEntry, *, with_arguments: bool, mask: Mask | None) -> dict[str, Any]:
    """Return the non-empty fields of an entry, with times in ISO 8601 and durations in seconds to the microsecond.

    The first one is the number of the line, which is known when the line is written.
    """
    origin = entry.origin
    texts = (
        entry.event,
        entry.id,
        origin.conversation,
        origin.turn,
        origin.owner,
        origin.client,
        origin.agent,
        entry.call,
        entry.server,
        entry.tool,
        entry.decision,
        entry.decided_by,
        entry.outcome,
    )
    fields: dict[str, Any] = {"n": 0, "time": _format_time(entry.time)}
    for name, text in zip(_TEXTS, texts, strict=True):
        if text:
            fields[name] = text if len(text) <= _MAX_NAME or name not in _NAMES else text[:_MAX_NAME]
    if entry.waited is not None:
        fields["waited_s"] = round(entry.waited, 6)
    if entry.duration is not None:
        fields["duration_s"] = round(entry.duration, 6)
    if entry.result_bytes is not None:
        fields["result_bytes"] = entry.result_bytes
    if entry.arguments is not None:
        fields["arguments_digest"] = compute_digest(entry.arguments)
        if with_arguments and (arguments := _prepare_arguments(entry.arguments, mask)) is not None:
            fields["arguments"] = arguments
    return fields


def _format_time(time: datetime) -> str:
    """Return a time in ISO 8601 to the millisecond, in UTC; `datetime.isoformat` takes twice as long, for each line."""
    at = time if time.tzinfo is UTC else time.astimezone(UTC)
    day = f"{at.year:04}-{_TWO[at.month]}-{_TWO[at.day]}"
    return f"{day}T{_TWO[at.hour]}:{_TWO[at.minute]}:{_TWO[at.second]}.{at.microsecond // 1000:03}Z"


def _prepare_arguments(arguments: Mapping[str, Any] | str, mask: Mask | None) -> Any:
    """Return arguments with known secrets masked; None if they are too long or not JSON."""
    try:
        value = _mask(arguments, mask) if mask is not None else arguments
        return value if len(json.dumps(value, allow_nan=False)) <= MAX_ARGUMENTS else None
    except (TypeError, ValueError, RecursionError):
        return None


def _mask(value: Any, mask: Mask) -> Any:
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {mask(str(name)): _mask(item, mask) for name, item in value.items()}
        case list() | tuple():
            return [_mask(item, mask) for item in value]
        case _:
            return value


def build_mask(secrets: Iterable[str]) -> Mask:
    """Return a mask for these secrets, without those of fewer than six characters, which occur in many other texts."""
    known = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
    if not known:
        return lambda text: text
    pattern = re.compile("|".join(re.escape(secret) for secret in known))
    return lambda text: pattern.sub("***", text)


def list_log_files(folder: Path) -> list[Path]:
    """Return the files of an audit log, the oldest first; empty if the folder does not exist."""
    try:
        found = [(int(match[1]), path) for path in folder.iterdir() if (match := _FILE_NAME.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(found)]


def build_next_path(folder: Path, previous: Path | None) -> Path:
    """Return the path of the file after `previous`; the path of the first file if `previous` is None."""
    match = _FILE_NAME.fullmatch(previous.name) if previous is not None else None
    return folder / f"audit-{int(match[1]) + 1 if match else 1:06}.jsonl"
