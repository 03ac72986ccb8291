"""The servers of the configuration: added, exchanged with other hosts, tested, and listed with what they offer.

``server_addition`` is ``servers add``: a program, a URL, a link, a bundle or a server of the MCP registry, which
``registry_client`` requests. ``server_proposals`` has servers that need no account. ``host_exchange`` imports servers
of other MCP hosts and exports to them. ``server_check`` tests a server. ``server_features`` lists tools, resources and
prompts, and calls a tool. ``oauth_login`` logs in to a server.
"""
