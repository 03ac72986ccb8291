"""The audit log: what was decided and called, in lines that are chained by their digests.

`entries` has what is recorded, `call_audit` records a call, `log` writes files, `records` is their format,
`verification` checks them.
"""
