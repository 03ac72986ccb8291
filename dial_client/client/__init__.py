"""`DialClient`: `dial_client` holds the class, `client_options` its options.

`turn_methods` has the ways to run a turn, `function_methods` the decorator of functions.
"""
