"""The commands of a conversation: lines that begin with ``/``.

``command_registry`` lists them, finds the one that a line names and runs it; ``chat_session`` is what they act on: the
client, the conversation and the screen. The other modules hold the commands, by subject. ``pick`` lets a person choose
from a list.
"""
