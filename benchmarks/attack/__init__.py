"""An injection benchmark: AgentDojo's suites as MCP servers, and a model that follows every instruction it reads.

`tool_annotations` and `goals` are written by hand. `suites` and `server` run in a server's process, the only one that
imports `agentdojo`. The rest runs in the host's, which talks to the server over MCP and, to set up and judge a trial,
over the socket of `control`. `obedient_model` is the model, `defenses` what is measured, `trials` runs it, `report`
counts.
"""
