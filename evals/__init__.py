"""How well a model calls tools through this host: ``python -m evals``."""
