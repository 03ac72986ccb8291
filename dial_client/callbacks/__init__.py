"""Requests to the embedding program or the user: approvals, elicitation, sampling, roots, logs and OAuth logins."""
