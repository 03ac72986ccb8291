"""The data of a turn: `limits` are its input, `events` and `turn_result` its output.

`token_usage` counts the tokens of a turn's model calls, and of the sampling requests during its tool calls.
"""
