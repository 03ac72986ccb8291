"""`DialClient`: the class is in `dial_client`, its options, and foreign names for them, are in `client_options`.

`client_setup` builds the parts of a client, `prompt_batch` runs the turns of `DialClient.map`, `recording` records and
replays a client, and `sampling` answers the servers' sampling requests, with the client's model or with a callback.
"""
