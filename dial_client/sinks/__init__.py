"""Outputs for the events of a turn: the terminal, server-sent events, and chat completion chunks."""
