"""The commands of ``dial-chat``: their options, their help, and their completion in the shell.

``program_commands`` runs a command line, and defines the chat and the other commands, ``servers_commands`` and
``skills_commands`` the groups ``servers`` and ``skills``; each imports the code of a command when it runs.
``command_line`` finds the command in the words of a line. ``typer_commands`` builds the commands. ``command_help``
formats ``--help`` (``site_pages.manual_page`` makes the manual page of it). ``shell_completion`` has the candidates and
the scripts of the shells.
"""
