"""The screen of ``dial-chat``: what is final is printed once, and the live area below it is redrawn.

`screen` owns the terminal; `live_area` is what the screen redraws, as data; `question_line` asks for a key or a line;
`printed_streams`, beside this folder, sends what other code prints through the screen.
"""
