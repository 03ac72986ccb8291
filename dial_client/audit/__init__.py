"""The audit log: decisions about tool calls and their results, in lines that are chained by their digests.

`entries` has the data, `call_audit` records a call, `log_writer` writes files, `record_format` is the format of a line,
`verification` checks the chain.

`entries` has what is recorded, `call_audit` records a call, `log` writes files, `records` is their format,
`verification` checks them.
"""
