"""`DialClient`: the class is in `dial_client`, its options are in `client_options`.

`client_setup` builds the parts of a client, `prompt_batch` runs the turns of `DialClient.map`, `recording` records and
replays a client, and `sampling` answers the servers' sampling requests, with the client's model or with a callback.
`foreign_keywords` has what other libraries call its arguments and methods.
"""
