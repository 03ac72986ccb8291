"""Requests to the embedding program or the user: approvals, elicitation, sampling, roots, logs and OAuth logins.

`call_context` is the tool call during which such a request is made: its deadlines pause meanwhile.
"""
