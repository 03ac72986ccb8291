"""``python -m benchmarks.hosts``: the same scripted model drives each host over the same MCP servers.

`environments` installs each host with its own pins, `work` has the tasks, `measurement` takes the samples by turns,
`tables` writes them as Markdown. The adapters are those of `probes`, and so are the faults. The standard library is all
that this package needs; the hosts are in environments of their own.
"""
