"""The data of a turn: `limits` are its input, `events` and `turn_result` its output."""
