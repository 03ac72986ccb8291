"""Detects whether the program has set up OpenTelemetry. Imports none of its modules if the program has not."""

from __future__ import annotations

import sys
from functools import lru_cache

from dial_client.hooks.middleware import Instruments

# The modules of the API, whose default providers record nothing.
_MODULES = ("opentelemetry.trace", "opentelemetry.metrics")
# These modules, each with its function that returns the provider.
_API = tuple(zip(_MODULES, ("get_tracer_provider", "get_meter_provider"), strict=True))


def find_instruments() -> Instruments | None:
    """Return the instruments; None if the program has set up neither traces nor metrics."""
    providers = tuple(_list_providers())
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


def _list_providers() -> list[object]:
    """Return the providers that the program has set; their classes come from an SDK, not from the API."""
    modules, found = sys.modules, []
    for name, getter in _API:
        if name in modules:
            provider: object = getattr(modules[name], getter)()
            if not type(provider).__module__.startswith(_MODULES):
                found.append(provider)
    return found
