"""How a server is reached."""
