"""The commands of ``dial-chat``: their options, their help, and their completion in the shell.

``entry_point`` runs a command line. ``program_commands`` defines the chat and the other commands, ``servers_commands``
the group ``servers``, ``config_command`` and ``init_command`` those that write servers.json; each imports the code of
a command when it runs. ``command_line`` finds the command in the words of a line. ``typer_apps`` are the applications
of Typer. ``command_help`` formats ``--help`` (``site_pages.manual_page`` makes the manual page of it).
``shell_completion`` has the candidates and the scripts of the shells.
"""
