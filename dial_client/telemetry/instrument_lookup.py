"""Finds out whether the program has set up OpenTelemetry. Imports nothing of it where the program has not."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from dial_client.middleware import Instruments

_API = ("opentelemetry.trace", "opentelemetry.metrics")
"""The modules of the API: their own providers record nothing."""


class _Known:
    """The instruments of the providers that were found last."""

    providers: tuple[object, ...] = ()
    instruments: Instruments | None = None


def find_instruments() -> Instruments | None:
    """Return the instruments; None where the program has set up neither traces nor metrics."""
    providers = tuple(_find_providers())
    if not providers:
        return None
    if providers != _Known.providers:
        from dial_client.telemetry.instruments import OpenTelemetryInstruments

        _Known.instruments, _Known.providers = OpenTelemetryInstruments(), providers
    return _Known.instruments


def record_restart(server: str) -> None:
    """Count a restart of a server, where the program has set up metrics."""
    if (instruments := find_instruments()) is not None:
        instruments.record_restart(server)


def _find_providers() -> Iterator[object]:
    """Yield the providers that the program has set: they are of an SDK, and not of the API."""
    trace, metrics = (sys.modules.get(name) for name in _API)
    if trace is not None:
        provider = trace.get_tracer_provider()
        if not type(provider).__module__.startswith(_API):
            yield provider
    if metrics is not None:
        provider = metrics.get_meter_provider()
        if not type(provider).__module__.startswith(_API):
            yield provider
