"""Benchmarks. ``python -m benchmarks.dial`` measures the overhead of this host over the bare SDKs."""
