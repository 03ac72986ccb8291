"""The commands ``dial-chat servers …``. Importing this package registers them.

``server_group`` is the group, with the options that its commands share. ``status_commands`` has list, login and
logout, ``entry_commands`` add, add-json, remove, enable and disable. ``server_addition`` makes an entry of words, and
says what is missing. ``changed_config`` finds the file to change, changes it with a backup, and renews trust.
"""

from dial_client.cli.server_commands import entry_commands, status_commands

__all__ = ["entry_commands", "status_commands"]
