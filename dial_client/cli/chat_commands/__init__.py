"""The commands of a conversation: lines that begin with ``/``.

``command_registry`` lists the commands, and runs the command that a line names. ``chat_session`` holds what the
commands use: the client, the conversation and the screen. The other modules hold the commands, by subject. ``pick``
lets the user choose from a list.
"""
