"""What the operator of a service may set, in one place: what `create_app` takes beside what the service offers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from dial_client.hooks.middleware import Middleware
from dial_client.serve.metrics import ServiceMetrics
from dial_client.serve.people.owner_limits import OwnerLimiter


@dataclass(frozen=True, slots=True)
class Operations:
    """How a service is watched, what it limits, and how long it keeps what."""

    access_log: bool = False
    """Whether each response is logged (level ``INFO`` of ``dial_client.serve.request_log``)."""
    metrics: ServiceMetrics | None = None
    """The metrics, which ``GET /metrics`` returns; None for none. The client needs `middleware`, too."""
    limits: OwnerLimiter | None = None
    """The limits of persons; None for none. The client needs `middleware`, too. Needs a database."""
    retain: timedelta | None = None
    """For how long conversations are kept in a database after their last change, and the audit log; None for ever."""
    audit_folder: Path | None = None
    """The folder of the client's audit log, which ``GET /audit`` and the page show; None for none."""
    min_free_bytes: int = 64 * 1024 * 1024
    """The free space on the disk of the database and of the audit log below which the service is not ready."""
    check_interval: float = 1.0
    """Seconds for which the answer of ``/readyz`` counts: for so long it asks neither database nor disk again."""

    @property
    def middleware(self) -> list[Middleware]:
        """What the client needs as `middleware`, for the metrics and the limits."""
        return [each for each in (self.limits, self.metrics) if each is not None]
