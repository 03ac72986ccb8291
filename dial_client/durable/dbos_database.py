"""Where DBOS keeps its tables for durable turns."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from dial_client.errors import ConfigError
from dial_client.stores.database_engines import private_file

SQLITE_IS_TOO_OLD = sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42)
"""DBOS has SQLite tell parts of seconds where Python is 3.12 or newer, and SQLite 3.42 was the first that can."""


def beside(conversations: str | Path) -> str | Path:
    """Give what is good for durable turns where conversations are kept in this, as `SQLStore` is given it.

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


def url_of(database: str | Path) -> str:
    """Give the URL DBOS takes. A SQLite file is made where there is none, for its owner only.

    Raises:
        ConfigError: this names no database that can be used.
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
    # The store's driver calls it ssl, as does nobody else.
    query = {"sslmode" if name == "ssl" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
