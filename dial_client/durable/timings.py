"""Intervals and timeouts of durable turns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DurableTimings:
    """Intervals and timeouts of durable turns, in seconds."""

    recovery_interval: float = 2.0
    """Seconds between two searches for turns whose process was killed."""
    start_timeout: float = 30.0
    """A turn that has not started after this many seconds, with no other turn before it, counts as abandoned."""
    database_timeout: float = 10.0
    """Timeout in seconds for writing a turn to the database, or reading one."""
    retention: float = 60.0
    """Seconds for which the workflow of an ended turn is kept, so that a process that was only slow can find it."""


DEFAULT_TIMINGS = DurableTimings()
