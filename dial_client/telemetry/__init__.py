"""Traces and metrics through `opentelemetry-api`, by the GenAI semantic conventions.

`instrument_lookup` finds out whether the program has set up OpenTelemetry, `instruments` has the spans and metrics, and
`attributes` what they say. Nothing is imported or recorded in a program without an SDK of OpenTelemetry.
"""
