"""Reads the columns of conversations as somebody else may have written them.

SQLite keeps a value of any type in any column, and text that is no UTF-8; a number may be none in PostgreSQL too. What
is not as this package writes it is read as if there were nothing: one wrong row keeps nobody from the others.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from dial_client.logs import get_logger
from dial_client.stores.conversation_store import title_from

log = get_logger(__name__)

EPOCH = datetime.fromtimestamp(0, UTC)
"""Stands for a time that cannot be read."""
_MAX_TURN = 64
_MAX_COUNT = 2**31 - 1


def to_text(value: Any) -> str:
    """Return a text; what is none of UTF-8 in it is replaced."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def to_title(value: Any) -> str:
    """Return a title as `title_from` makes it."""
    return title_from(to_text(value))


def to_time(value: Any) -> datetime:
    """Return a time in UTC; `EPOCH` where there is none."""
    try:
        found = datetime.fromisoformat(to_text(value))
    except ValueError:
        log.warning("row_damaged", column="time")
        return EPOCH
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def to_count(value: Any) -> int | None:
    """Return a number of messages; None where there is none."""
    if isinstance(value, int) and 0 <= value <= _MAX_COUNT:
        return value
    log.warning("row_damaged", column="count")
    return None


def to_seconds(value: Any) -> float:
    """Return seconds by the database's clock; 0 where they are none."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def to_turn(value: Any) -> str:
    """Return the id of a turn; empty where there is none."""
    turn = to_text(value)
    return turn if len(turn) <= _MAX_TURN and turn.isascii() and turn.isprintable() else ""
