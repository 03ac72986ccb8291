"""The commands ``dial-chat servers …``. Importing this package registers them.

``server_group`` is the group, with the options that its commands share. ``status_commands`` has list, login, logout
and test, ``entry_commands`` add, add-json, remove, enable and disable, ``exchange_commands`` import, export and search.
``server_addition`` builds an entry from command line words; ``source_addition`` adds the server of a link, a bundle or
the MCP registry. ``registry_client`` sends the requests to the registry. ``server_check`` tests a server.
``host_import`` and ``host_output`` exchange servers with other MCP hosts. ``changed_config`` finds the file to change,
changes it with a backup, and renews its trust.
"""

from dial_client.cli.server_commands import entry_commands, exchange_commands, status_commands

__all__ = ["entry_commands", "exchange_commands", "status_commands"]
