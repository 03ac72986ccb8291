"""Traces and metrics through `opentelemetry-api`, by the GenAI semantic conventions.

`instrument_lookup` detects whether the program has set up OpenTelemetry, `instruments` records spans and metrics, and
`attributes` builds their attributes. Without an OpenTelemetry SDK in the program, nothing is imported or recorded.
"""
