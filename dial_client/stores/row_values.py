"""Parses the columns of conversations, with values of any type.

Other programs may have written them: SQLite stores values of any type in any column, and text in any encoding;
PostgreSQL stores NaN as a number. A value that this package does not write counts as missing, so that a wrong row does
not make other rows unreadable.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import build_title

log = get_logger(__name__)

EPOCH = datetime.fromtimestamp(0, UTC)
"""The time of a row whose stored time cannot be read."""
_MAX_TURN = 64
_MAX_COUNT = 2**31 - 1


def to_text(value: Any) -> str:
    """Return the value as text, with bytes that are not UTF-8 replaced; empty for other types."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def to_title(value: Any) -> str:
    """Return the value as a title, normalized by `build_title`."""
    return build_title(to_text(value))


def to_time(value: Any) -> datetime:
    """Return the value as a time in UTC; `EPOCH` if it is not a time."""
    try:
        found = datetime.fromisoformat(to_text(value))
    except ValueError:
        log.warning("row_damaged", column="time")
        return EPOCH
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def to_count(value: Any) -> int | None:
    """Return the value as a number of messages; None if it is not a valid number."""
    if isinstance(value, int) and 0 <= value <= _MAX_COUNT:
        return value
    log.warning("row_damaged", column="count")
    return None


def to_seconds(value: Any) -> float:
    """Return the value as seconds; 0 if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def to_turn(value: Any) -> str:
    """Return the value as the id of a turn; empty if it is not a valid id."""
    turn = to_text(value)
    return turn if len(turn) <= _MAX_TURN and turn.isascii() and turn.isprintable() else ""
