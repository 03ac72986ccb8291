"""The database in which DBOS stores its tables for durable turns, and how much DBOS asks of it."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.stores.database import SILENCE, create_private_file

# True if DBOS cannot use SQLite: on Python 3.12 or newer it needs fractions of seconds, new in SQLite 3.42.
SQLITE_IS_TOO_OLD = sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42)


def default_database(conversations: str | Path) -> str | Path:
    """Return the default database for durable turns, given the database of conversations.

    In PostgreSQL it is the same database, in which DBOS has its own schema (``dbos``). For a SQLite file it is a second
    file in the same folder, such as ``talk.db-turns``, so that neither waits for writes to the other.

    Args:
        conversations: The database, as `SQLStore` takes it; the result has the same form.
    """
    from sqlalchemy import make_url

    if isinstance(conversations, str):
        url = make_url(conversations)
        if url.get_backend_name() != "sqlite":
            return conversations
        conversations = Path(url.database or "")
    return conversations.with_name(f"{conversations.name}-turns")


def to_dbos_url(database: str | Path) -> str:
    """Return the URL of a database in the form of DBOS. A missing SQLite file is created, readable by its owner only.

    Raises:
        ConfigError: The database cannot be used.
    """
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = URL.create("sqlite", database=str(database)) if isinstance(database, Path) else make_url(database)
    except ArgumentError as error:
        raise ConfigError("this is not a database that can be used for durable turns") from error
    if url.get_backend_name() not in ("sqlite", "postgresql", "postgres"):
        raise ConfigError("durable turns need a PostgreSQL or SQLite database")
    if url.get_backend_name() == "sqlite":
        if SQLITE_IS_TOO_OLD:
            problem = f"durable turns need SQLite 3.42 or newer, and this Python has {sqlite3.sqlite_version}"
            raise ConfigError(problem, hint="use PostgreSQL, or another Python")
        file = create_private_file(Path(url.database or ""))
        return URL.create("sqlite", database=str(file)).render_as_string()
    # asyncpg, the driver of `SQLStore`, names this parameter ssl; the driver of DBOS names it sslmode.
    query = {"sslmode" if name == "ssl" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)


# The most seconds between two attempts of DBOS to reach its database: a client that waits for the end of a restart is
# answered then, in place of after its `database_timeout`.
_MAX_PAUSE = 0.5

# Connections of DBOS to PostgreSQL: a service has six in all.
_CONNECTIONS = 2


# The same for the driver of DBOS as `database.notice_silence`; libpq has a name for each option.
_KEEPALIVE = {
    "keepalives_idle": SILENCE // 3,
    "keepalives_interval": SILENCE // 3,
    "keepalives_count": 2,
    "tcp_user_timeout": SILENCE * 1000,
}


def build_dbos_options(database: str | Path) -> dict[str, Any]:
    """Return the options of DBOS for this database. Its own messages are not used, so that it listens for none."""
    url = to_dbos_url(database)
    if url.startswith("sqlite"):
        return {"system_database_url": url}
    # DBOS tries again after a lost connection, so that none needs a test before its use.
    engine = {"pool_pre_ping": False, "connect_args": {"application_name": "dbos_transact", **_KEEPALIVE}}
    options = {"sys_db_pool_size": _CONNECTIONS, "use_listen_notify": False, "db_engine_kwargs": engine}
    return {"system_database_url": url, **options}


def reduce_polling(dbos: Any) -> None:
    """Stop what DBOS looks for every second and this package has not: named queues, schedules, delays, timeouts.

    Call it after the launch. Names of DBOS that another version does not have are ignored: that version only asks more.
    """
    with suppress(AttributeError):
        dbos._background_jobs_stop_event.set()  # noqa: SLF001 - there is no option
        dbos._sys_db.list_queues = dbos._sys_db.list_schedules = lambda **_: []  # noqa: SLF001 - as above


def shorten_pauses() -> None:
    """Let DBOS ask a database that was away again after `_MAX_PAUSE` seconds at most: it doubles its pauses up to 90.

    Its pauses have no option. A name of DBOS that another version does not have is left alone, and its pauses too.
    """
    from dbos import _sys_db

    names: Any = _sys_db
    if getattr(names, "time", None) is time:
        names.time = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, _MAX_PAUSE))})


def set_queue_polling(dbos: Any, seconds: float) -> None:
    """Set how often DBOS looks for workflows that this package has resumed."""
    with suppress(AttributeError):
        dbos._registry.get_internal_queue()._polling_interval_sec = seconds  # noqa: SLF001 - in its queue it cannot be set


def stop_retries(dbos: Any) -> None:
    """Let DBOS fail when its database is away. Otherwise its threads try without end, and the program cannot exit."""
    with suppress(Exception):  # another version has other names, and a destroyed one has no database
        dbos._sys_db._retry_connection_errors = False  # noqa: SLF001 - an option of its client only


def stop_queues(dbos: Any, seconds: float) -> None:
    """Let DBOS begin no workflow of a queue any more; call this before its end.

    DBOS ends its event loop before it waits for the threads of its queues. A workflow that such a thread has just taken
    would meet the closed loop, and count as begun until its process counts as dead.

    Args:
        dbos: DBOS.
        seconds: How long the threads are waited for, each of which may take a workflow at this moment.
    """
    for event in getattr(dbos, "background_thread_stop_events", ()):
        event.set()
    end = time.monotonic() + seconds
    # The name is what DBOS gives; of another version no thread is waited for.
    while any(thread.name.startswith("queue-worker-") for thread in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
