"""Completion in the user's shell: ``dial-chat --install-completion``.

``shell_script`` has the scripts of the shells, and installs them. A script runs ``dial-chat`` with the environment
variable `VARIABLE` and the words of the command line. ``candidates`` prints the candidates from ``known_names``,
without starting a server, requesting a model, or using an untrusted configuration.
"""

VARIABLE = "_DIAL_CHAT_COMPLETE"
"""The environment variable that requests candidates; its value is the name of the shell."""
