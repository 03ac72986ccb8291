"""The tools that a model is offered, the approval of their calls, and their results.

`catalog` names the tools of all servers, `tool_selection` chooses the tools of a round, with `search_index` if there
are many. `executor` validates, approves and makes calls: `approval` decides by `policy` (with `argument_paths`),
`grants`, `taint` and `approval_mode`. `result_content` adapts results to the model. `function_tools` calls functions of
the program, `prompts` and `resource_tools` provide the servers' prompts and resources.
"""
