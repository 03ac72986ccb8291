"""MCP servers: starting, restarting, calling tools, and listing tools and resources.

`server_manager` holds the connections of a client; a `connection` has the status and the calls of one server. Its
`supervisor` runs one `session` after another, as the `restart_policy` decides. `server_requests` answers the requests
of a server. `tool_listing`, `list_cache` and `resources` read its lists, and `notifications` records their changes.
`server_cache` and `tool_pins` store its tools from run to run in a `json_cache`. `transports` carries the messages;
`oauth` authorizes HTTP requests.
"""
