"""One turn: everything around the recursion in `dial_client.turns.resolution`.

`turn_runner` puts a turn together, `turn_handle` is a running turn, `event_log` and `turn_recorder` keep its events and
its result, `model_call` is one exchange with the model, `finalization` writes the last message. A request is prepared
by `mentions`, `instructions`, `server_instructions` and `context_window`. `progress_limits` ends turns that make no
progress, `status_text` and `status_model` describe running calls, `client_tools` returns calls of the caller's own
tools, and `sampling` answers servers that ask the model.
"""
