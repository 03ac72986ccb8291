"""Messages of a conversation (`message`), the data that they contain, and their forms in the vendors' APIs.

`attached_files` makes parts of text files that the user attaches, and `content_text` makes text of parts. `citations`,
`icons`, `mcp_apps` and `stored_entry` define data of messages and results, `token_usage` counts the tokens that they
took, and `left_out` notes what a conversion cannot express. `openai_messages` and `anthropic_messages` convert JSON to
JSON; `vendor_forms` has the methods of `Message` that use them. The providers do not use these conversions for their
requests: they adapt a conversation to what an endpoint accepts.
"""
