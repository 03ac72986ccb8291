"""structlog events through the standard library's logging; silent until a program enables a level.

Events contain names, counts, durations and texts of errors, but no contents, arguments or results of calls. Unexpected
errors, and errors in code of the embedding program (`Logger.failure`), have a traceback. structlog is imported when the
first event is logged. ``logging.getLogger("dial_client")`` sets the level. If the program has configured structlog, its
configuration renders the events.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

# Configures structlog before the first event; None if nothing is left to do.
_configure: Callable[[], None] | None = None


def configure_at_first_event(configure: Callable[[], None] | None) -> None:
    """Call a function before the first event that is logged, or none: most runs log nothing, and structlog is slow."""
    global _configure  # noqa: PLW0603 - structlog's configuration is global
    _configure = configure


class Logger:
    """The log of one module."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Log a step of normal work."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log a delay or a fallback."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log a problem that does not stop the work."""
        self._log(logging.WARNING, event, fields)

    def failure(self, event: str, error: BaseException, **fields: Any) -> None:
        """Log an error in code of the embedding program, with its place (``file:line``) and its traceback."""
        from traceback import extract_tb, format_exception

        frames = extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        self.warning(event, **fields, error=type(error).__name__, place=place, trace="".join(format_exception(error)))

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            global _configure
            import structlog

            configure, _configure = _configure, None
            if configure is not None:
                configure()
            fields |= _find_trace_ids()
            plain = None if structlog.is_configured() else _list_plain_processors()
            structlog.wrap_logger(self._logger, processors=plain).log(level, event, **fields)


def _list_plain_processors() -> list[Any]:
    """Return what renders events if the program has not configured structlog, with the context of a request."""
    import structlog

    return [structlog.contextvars.merge_contextvars, structlog.processors.KeyValueRenderer(key_order=["event"])]


def _find_trace_ids() -> dict[str, str]:
    """Return the ids of OpenTelemetry's current span, in hexadecimal digits; empty outside of a span."""
    trace = sys.modules.get("opentelemetry.trace")  # a program that records spans has imported it
    context = trace.get_current_span().get_span_context() if trace is not None else None
    if context is None or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def get_logger(name: str) -> Logger:
    """Return the log of a module; call it with ``__name__``."""
    return Logger(name)


logging.getLogger("dial_client").addHandler(logging.NullHandler())
