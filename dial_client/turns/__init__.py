"""One turn: everything around the recursion in `dial_client.turns.resolution`.

`turn_run` runs a turn, `turn_handle` controls a running turn, `event_log` and `turn_recorder` keep its events and its
result, `model_call` is one exchange with the model, `finalization` writes the last message. `mentions`, `instructions`
and `context_window` prepare the request. `output_type` and `typed_answer` are the types of typed answers, their
requests and their corrections. `status_text` and `status_model` describe running calls. `context_report` says what
fills the context window.
"""
