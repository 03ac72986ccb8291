"""The tools that a model is offered, the approval of their calls, and their results.

`catalog` names the tools of all servers, `tool_selection` chooses the tools of a round, with `search_index` if there
are many. `executor` runs calls: `call_validation` checks them, `approval` allows or denies them by `policy`, `grants`,
`session_grants` and `taint`. `result_content` and `result_store` adapt results to the model. `prompts` and
`resource_tools` provide the servers' prompts and resources.
"""
