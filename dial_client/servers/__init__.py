"""MCP servers: how they are started, restarted, called, and asked for what they have.

`server_manager` has the connections of a client, a `connection` the status and the calls of one server. Its
`supervisor` runs one `session` after the other, as the `restart_policy` decides. `server_requests` answers the requests
of a server; `tool_listing`, `list_cache` and `resources` read what it offers, and `notifications` tells of changes.
`server_cache` and `tool_pins` keep in a `json_cache` what was known of it. `transports` carries the messages, `oauth`
authorizes them.
"""
