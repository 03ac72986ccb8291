"""structlog events through the standard library's logging: a library is silent until somebody wants to hear it.

Levels, counts, names and durations only; never contents, arguments or secrets. structlog is loaded with the first event
that is wanted, so it costs nothing where nobody listens. ``logging.getLogger("dial_client")`` turns it on; how an event
is rendered is structlog's configuration, if the program has one.
"""

from __future__ import annotations

import logging
from typing import Any


class EventLog:
    """What a module says about itself."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **about: Any) -> None:
        """Say what was done."""
        self._say(logging.DEBUG, event, about)

    def info(self, event: str, **about: Any) -> None:
        """Say what takes longer than it should, or went another way."""
        self._say(logging.INFO, event, about)

    def warning(self, event: str, **about: Any) -> None:
        """Say what is not as it should be, though all goes on."""
        self._say(logging.WARNING, event, about)

    def _say(self, level: int, event: str, about: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            import structlog

            plain = None if structlog.is_configured() else [structlog.processors.KeyValueRenderer(key_order=["event"])]
            structlog.wrap_logger(self._logger, processors=plain).log(level, event, **about)


def get_logger(name: str) -> EventLog:
    """Give the log of a module; call it with ``__name__``."""
    return EventLog(name)


logging.getLogger("dial_client").addHandler(logging.NullHandler())
