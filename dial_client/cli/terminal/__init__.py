"""The screen of ``dial-chat``: final text is printed once, and the live area below it is redrawn.

`screen` controls the terminal; `live_area` has the state that the screen redraws, `status_line` the
last row; `question_line` asks for a key or a
line; `cli.streams.printed_streams` redirects the output of other code to the screen.
"""
