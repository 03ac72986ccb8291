"""`DialClient`: `dial_client` holds the class, `client_options` its options.

`turn_methods` has the ways to run a turn, `convenience_methods` the short ones, `server_methods` the servers and tools
and what changes the servers, `function_methods` the decorator of functions, `notebook_methods` the forms for notebooks.
"""
