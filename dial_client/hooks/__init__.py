"""What watches a turn, and answers for the user: middleware, callbacks, the audit log, traces and metrics.

`middleware` goes around turns, model calls and tool calls. `server_callbacks` has the requests of servers to the
embedding program (elicitation, sampling, roots, logs), `oauth_callbacks` their logins, and `approval_request` what an
approver is shown; `call_context` is the tool call during which such a request is made: its deadlines pause meanwhile.
"""
