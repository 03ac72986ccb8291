"""Messages of conversations (`message`), the data that they contain, and their forms in the vendors' APIs.

`model` has the request to a model and its reply, `events` and `turn_result` have what a turn yields and returns, within
its `limits`, and `errors` what it raises. `citations` and `mcp_apps` define data of messages and results, and
`token_usage` counts the tokens that they took. `vendor_messages` converts JSON to JSON; `vendor_forms` has the methods
of `Message` that use it. The providers do not use these conversions for their requests: they adapt a conversation to
what an endpoint accepts.
"""
