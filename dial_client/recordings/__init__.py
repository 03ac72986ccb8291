"""Conversations written down whole for a bug report (`recording`), and played again offline (`replaying`)."""
