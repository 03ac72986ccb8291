"""One turn: everything around the recursion in `dial_client.turns.resolution`.

`turn_runner` builds and runs a turn, `turn_handle` controls a running turn, `event_log` and `turn_recorder` keep its
events and its result, `model_call` is one exchange with the model, `finalization` writes the last message. `mentions`,
`instructions`, `server_instructions` and `context_window` prepare the request. `output_type`, `answer_format` and
`typed_answer` are the types of typed answers, their requests and their corrections. `progress_limits` ends turns that
make no progress, `status_text` and `status_model` describe running calls, and `client_tools` returns calls of
client-side tools to the caller.
"""
