"""The audit log: decisions about tool calls and their results, in lines that form a hash chain.

`entries` defines the data and records a call, `log_writer` writes files under a lock between programs, `record_format`
defines the format of a line, `verification` checks the chain.
"""
