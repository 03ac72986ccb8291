"""`dial-chat serve` under load, and under faults: ``python -m benchmarks.load``."""
