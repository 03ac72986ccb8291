"""Conversations written to a file for a bug report (`recording`), and played again offline (`replay`)."""
