"""Detects whether the program has set up OpenTelemetry. Imports none of its modules if the program has not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache

from dial_client.hooks.middleware import Instruments

# The modules of the API, whose default providers record nothing.
_API = ("opentelemetry.trace", "opentelemetry.metrics")


def find_instruments() -> Instruments | None:
    """Return the instruments; None if the program has set up neither traces nor metrics."""
    providers = tuple(_find_providers())
    return _build_instruments(providers) if providers else None


@lru_cache(maxsize=1)
def _build_instruments(_providers: tuple[object, ...]) -> Instruments:
    """Return the instruments for the providers that the program has set now."""
    from dial_client.hooks.telemetry.instruments import OpenTelemetryInstruments

    return OpenTelemetryInstruments()


def record_restart(server: str) -> None:
    """Count a restart of a server, if the program has set up OpenTelemetry."""
    if (instruments := find_instruments()) is not None:
        instruments.record_restart(server)


def _find_providers() -> Iterator[object]:
    """Yield the providers that the program has set; their classes come from an SDK, not from the API."""
    for name, getter in zip(_API, ("get_tracer_provider", "get_meter_provider"), strict=True):
        if (api := sys.modules.get(name)) is not None:
            provider: object = getattr(api, getter)()
            if not type(provider).__module__.startswith(_API):
                yield provider
