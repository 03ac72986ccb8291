"""The input line of a conversation: keys, pasted text, history, completion, attachments, and shell commands.

`input_line` is the main module: it owns the buffer, and turns each line that is sent into a `user_input.UserInput`. It
works inside a prompt_toolkit application (`InputLine.container`), and on its own (`InputLine.read`).
"""
