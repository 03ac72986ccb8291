"""What a model is offered of the servers, who may call it, and what comes back.

`offering` chooses the tools of a round, where there are many by `index`, which knows `words` that mean the same;
`approvals` decides; `results` and `shelf` make what a tool gave fit for a model. `prompts` and `resource_tools` are
what servers have besides. The names of tools are given in `dial_client.tools.catalog`, their calls are carried out in
`dial_client.tools.executor`.
"""
