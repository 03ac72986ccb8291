"""Code mode: the model writes a program that calls tools, and the program runs in a sandbox.

`run_code` is the tool of the host, `snippet_run` runs one program, whose calls `tools.executor` makes like any others.
`tool_stubs` describes the tools to the model as Python functions, `call_values` converts arguments and results,
`sealed_states` has a program that waits for a person, and what a program has left for the next one; `sandbox` alone
knows the interpreter.
"""
