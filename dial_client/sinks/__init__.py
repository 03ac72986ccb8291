"""Outputs for the events of a turn: the terminal, server-sent events, chunks of chat completions."""
