"""`DialClient`: the class is in `dial_client`, its options are in `client_options`.

Its methods are grouped by module: `turn_methods` runs turns, `convenience_methods` has shortcuts, `server_methods`
reads and changes servers, `function_methods` offers functions as tools, `notebook_methods` shows a client in notebooks.
`sampling` answers the servers' sampling requests, with the client's model or with a callback.
"""
