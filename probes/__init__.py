"""Twenty kinds of failure of models and MCP servers, for any host: ``python -m probes --host ADAPTER``.

`kinds` has the probes, `servers` the MCP servers that fail, `model_endpoint` the scripted model, `script` its replies,
`adapter_runner` runs an adapter in the Python of its host, `host_process` controls it, `verdict` says what was seen.
`adapters` has the adapters of this library and of others. Only the adapters need more than the standard library.
"""
