"""The audit log: decisions about tool calls and their results, in lines that form a hash chain.

`entries` defines the data, `call_audit` records a call, `log_writer` writes files, `record_format` defines the format
of a line, `file_lock` locks the log between programs, `verification` checks the chain.
"""
