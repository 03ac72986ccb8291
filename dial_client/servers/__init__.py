"""MCP servers: starting, restarting, calling tools, and listing tools and resources.

`server_manager` holds the connections of a client. A `connection` owns one server: it runs one `session` after another,
as the `restart_policy` decides, makes the calls, and writes the `status`. `server_requests` answers the requests of a
server, `notifications` records its changes and reads its tools again, `resources` reads its other lists. `server_cache`
stores its tools, and the tools that were approved, from run to run; `secret_masking` masks its secrets. `transports`
carries the messages; `oauth` authorizes HTTP requests. `sdk_import` imports the SDK.
"""
