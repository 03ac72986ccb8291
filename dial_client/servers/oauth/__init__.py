"""Logging in to servers behind a URL (MCP specification, "Authorization").

The SDK has the protocol; what it leaves to the host is here: where tokens are kept (`vault`), which addresses a server
may send us to (`addresses`, `courier`), how a person logs in (`callbacks.oauth_callbacks`, `loopback`), how a machine
does (`machines`), and that any number of calls goes out side by side, while what fails ends in words (`badge`,
`providers`).
"""
