"""The log of ``dial-chat serve`` on standard error: its form, and whether it has a line for each request."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

from dial_client.runtime.logs import configure_at_first_event

# The form of the log: lines for people, or a JSON object in each line.
LogFormat = Literal["console", "json"]
# The logger of `serve.request_log`.
_ACCESS = "dial_client.serve.request_log"


def set_up_service_log(form: LogFormat, *, has_access_log: bool) -> None:
    """Let the log be written in a form. Events of other libraries are written in the same form.

    Args:
        form: ``console`` or ``json``.
        has_access_log: Whether requests are logged, too, when only warnings are.
    """
    if has_access_log and logging.getLogger("dial_client").level > logging.INFO:
        logging.getLogger(_ACCESS).setLevel(logging.INFO)

    def configure() -> None:
        import structlog

        is_json = form == "json"
        shared: list[Any] = [
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=is_json),
        ]
        render: Any = structlog.processors.JSONRenderer(default=str)
        if not is_json:
            render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        formatter = structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render], foreign_pre_chain=shared
        )
        for handler in logging.getLogger().handlers:
            handler.setFormatter(formatter)
        structlog.configure(processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter])

    if form == "json":
        configure()  # now: the first event may be one of another library
    configure_at_first_event(configure if form == "console" else None)
