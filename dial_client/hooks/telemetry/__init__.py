"""Traces and metrics through `opentelemetry-api`, by the GenAI semantic conventions.

`instrument_lookup` detects whether the program has set up OpenTelemetry, `instruments` records spans and metrics.
Without an OpenTelemetry SDK in the program, nothing is imported or recorded.
"""
