"""`DialClient`: `dial_client` holds the class, `turn_methods` the ways to run a turn, `client_options` its options."""
