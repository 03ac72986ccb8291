"""What the program asks a person at the terminal: approvals of calls, and elicitation requests of servers.

`terminal_approver` asks for approval, unless `approval_modes` allows the call; `elicitation_prompt` asks for what a
server wants to know. `approval_rows`, `approval_prompt` and `box_frame` are parts of both on the screen.
"""
