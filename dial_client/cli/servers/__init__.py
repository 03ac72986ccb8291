"""The servers of the configuration: added, exchanged with other hosts, tested, and listed with what they offer.

``server_addition`` is ``servers add``: a program, a URL, a link, a bundle or a server of the MCP registry.
``server_proposals`` has servers that need no account. ``host_exchange`` imports servers of other MCP hosts and exports
to them. ``server_features`` lists tools, resources and prompts, calls a tool, and tests a server. ``oauth_login`` logs
in to a server.
"""
