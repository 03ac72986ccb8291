"""The database in which DBOS keeps its tables for durable turns."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from dial_client.errors import ConfigError
from dial_client.stores.database_engines import private_file

SQLITE_IS_TOO_OLD = sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42)
"""With Python 3.12 or newer DBOS uses SQLite's fractions of seconds, which SQLite has since 3.42."""


def default_database(conversations: str | Path) -> str | Path:
    """Return the database for durable turns that goes with a database of conversations, both as `SQLStore` takes them.

    In PostgreSQL that is the same database, in which DBOS has a schema of its own (``dbos``). Beside a SQLite file it
    is another one, so that neither waits for the other's writes: ``talk.db-turns``.
    """
    from sqlalchemy import make_url

    if isinstance(conversations, str):
        url = make_url(conversations)
        if url.get_backend_name() != "sqlite":
            return conversations
        conversations = Path(url.database or "")
    return conversations.with_name(f"{conversations.name}-turns")


def to_dbos_url(database: str | Path) -> str:
    """Return the URL DBOS takes. A SQLite file is made where there is none, for its owner only.

    Raises:
        ConfigError: the database cannot be used.
    """
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = URL.create("sqlite", database=str(database)) if isinstance(database, Path) else make_url(database)
    except ArgumentError as error:
        raise ConfigError("this is no database that can be used for durable turns") from error
    if url.get_backend_name() not in ("sqlite", "postgresql", "postgres"):
        raise ConfigError("durable turns are kept in PostgreSQL or SQLite")
    if url.get_backend_name() == "sqlite":
        if SQLITE_IS_TOO_OLD:
            problem = f"durable turns need SQLite 3.42 or newer, and this Python has {sqlite3.sqlite_version}"
            raise ConfigError(problem, hint="use PostgreSQL, or another Python")
        file = private_file(Path(url.database or ""))
        return URL.create("sqlite", database=str(file)).render_as_string()
    # Only the store's driver calls it ssl.
    query = {"sslmode" if name == "ssl" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
