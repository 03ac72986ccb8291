"""What this host adds to the bare SDKs: ``python -m benchmarks.dial``."""
