"""What a turn takes and what it gives, as data: `limits` and `call_context` go in, `events` and `turn_result` come out.

`token_usage` is what the model calls of a turn, and of the calls within it, have used.
"""
