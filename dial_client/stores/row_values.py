"""Parses the columns of conversations, whatever another program has written to them.

SQLite stores a value of any type in any column, and text that is no UTF-8; PostgreSQL stores NaN among numbers. A value
that this package does not write is read as missing: one wrong row must not make the others unreadable.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import title_from

log = get_logger(__name__)

EPOCH = datetime.fromtimestamp(0, UTC)
"""The time of a row whose own cannot be read."""
_MAX_TURN = 64
_MAX_COUNT = 2**31 - 1


def to_text(value: Any) -> str:
    """Return a text; bytes that are no UTF-8 are replaced."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def to_title(value: Any) -> str:
    """Return a title in the form of `title_from`."""
    return title_from(to_text(value))


def to_time(value: Any) -> datetime:
    """Return a time in UTC; `EPOCH` if the value is no time."""
    try:
        found = datetime.fromisoformat(to_text(value))
    except ValueError:
        log.warning("row_damaged", column="time")
        return EPOCH
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def to_count(value: Any) -> int | None:
    """Return a number of messages; None if the value is no such number."""
    if isinstance(value, int) and 0 <= value <= _MAX_COUNT:
        return value
    log.warning("row_damaged", column="count")
    return None


def to_seconds(value: Any) -> float:
    """Return seconds by the database's clock; 0 if the value is no finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def to_turn(value: Any) -> str:
    """Return the id of a turn; empty if the value is no id."""
    turn = to_text(value)
    return turn if len(turn) <= _MAX_TURN and turn.isascii() and turn.isprintable() else ""
