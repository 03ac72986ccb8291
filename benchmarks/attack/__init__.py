"""A benchmark of prompt injection: AgentDojo's suites as MCP servers, and a model that follows every instruction.

`tool_annotations` and `goals` are written by hand. `suites` and `server` run in a server's process, the only process
that imports `agentdojo`. The other modules run in the host's process, which talks to the server over MCP and, to set up
and judge trials, over the socket of `control`. `obedient_model` is the model, `defenses` are the compared setups of the
host, `trials` runs them, and `report` sums up the results.
"""
