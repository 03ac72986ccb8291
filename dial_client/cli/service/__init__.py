"""The command ``serve``, and the commands for its persons and its database."""
