"""Completion in the person's shell: ``dial-chat --install-completion``.

``shell_script`` holds the scripts of the shells, and installs them. A script runs ``dial-chat`` with the variable
`VARIABLE` and the words of the command line; ``candidates`` answers, from ``known_names``: no server is started, no
model is asked, and a configuration that the person does not trust is not used.
"""

VARIABLE = "_DIAL_CHAT_COMPLETE"
"""The environment variable that asks for candidates, and names the shell."""
