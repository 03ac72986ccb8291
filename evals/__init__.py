"""Evaluations of models that call tools through this host: ``python -m evals``."""
