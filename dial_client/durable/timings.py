"""The intervals of durable turns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DurableTimings:
    """How often DBOS is asked, and how long it may take; all in seconds."""

    recovery_interval: float = 2.0
    """Between two looks for turns whose process is gone."""
    start_timeout: float = 30.0
    """After these a turn is taken for abandoned that has not started, though no other turn is in its way."""
    database_timeout: float = 10.0
    """In these a turn has to be written down, or looked up."""
    retention: float = 60.0
    """For these the workflow of a turn that is over can be found: a process that was only slow looks there."""


DEFAULT_TIMINGS = DurableTimings()
