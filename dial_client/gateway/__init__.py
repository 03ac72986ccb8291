"""The gateway: all servers of a configuration as one MCP server, in both revisions of the protocol.

`gateway` builds the server on `mcp.server.lowlevel`, and serves it on standard input and output. `client_session` is
what is known of one client; `definitions` are the tools as they are listed, under names that fit every host;
`tool_calls` makes a call through the executor of the client, and hands the server's result on as it is; `denials` says
why a call was not allowed, and what allows it; `list_changes` announces that a list has changed; `long_results`
shortens results on request; `meta_tools` finds, describes and calls the tools that are too many to be listed, as
`tool_listing` says; `standard_streams` and `standard_files` carry the protocol of `dial-chat gateway`, and
`early_answers` gives the answers of the last run to the first requests. `client_dispatcher` begins the calls of a
client, and `modern_requests` reads what a client of 2026-07-28 says about itself.

`questions` asks the clients: approvals (`approval_form`), and what servers ask during a call; `state_codec` seals what
a client brings back. `client_requests` is one
request of a client, `suspended_calls` one that waits for answers in revision 2026-07-28. `client_tasks` are calls that
go on while their client does something else. `login_tool` logs in to servers at the client.

`server_lists` reads the other lists of the servers, for `server_resources` and `server_prompts`; `addresses` are the
URIs of resources, which never collide; `resource_subscriptions` reports changes to those who subscribed, and
`client_logs` the messages of servers; `upstream_requests` sends a client's request to one server.
"""
