"""The gateway: all servers of a configuration as one MCP server, in both revisions of the protocol.

`gateway` builds the server on `mcp.server.lowlevel`, and serves it on standard input and output. `client_session` is
what is known of one client; `definitions` are the tools as they are listed, under names that fit every host;
`tool_calls` makes a call through the executor of the client, and hands the server's result on as it is; `denials` says
why a call was not allowed, and what allows it; `list_changes` announces that a list has changed; `standard_streams`
and `standard_files` carry the protocol of `dial-chat gateway`.
"""
