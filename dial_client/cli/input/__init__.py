"""The input line of a conversation: keys, pasted text, history, completion, and what a line attaches or runs.

`input_line` is the entry: it owns the buffer and makes a `user_input.UserInput` of every line that is sent. It works
inside a prompt_toolkit application (`InputLine.container`), and on its own (`InputLine.read`).
"""
