"""Conversations and single questions at the terminal.

``conversation`` holds a conversation; ``conversation_loop``, loaded behind the first prompt, answers its lines.
``one_shot`` answers a single question. ``startup_report`` waits for the servers and reports on them. ``chat_session``
is the client, the stored conversation and the turns of this run. ``slash_commands`` lists the commands of a
conversation (lines that begin with ``/``) and runs the command of a line; the modules ``*_commands`` hold the commands,
by subject. ``stored_conversations`` is the command ``conversations``.
"""
