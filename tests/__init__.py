"""Sentences about what the program does, each run."""
