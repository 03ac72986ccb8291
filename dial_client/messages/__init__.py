"""Messages of a conversation: what a message is (`message`), what one carries, and its forms in the vendors' APIs.

`citations`, `icons`, `mcp_apps` and `stored_entry` are data of messages and results. `openai_messages` and
`anthropic_messages` convert JSON to JSON; `vendor_forms` has the methods of `Message` that use them. Requests are not
built here: the providers send what an endpoint accepts, whatever the conversation.
"""
