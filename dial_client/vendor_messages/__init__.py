"""Messages in the forms of the vendors' APIs: `openai_messages` and `anthropic_messages` convert JSON to JSON.

`vendor_forms` has the methods of `Message`, and the functions for whole conversations. Requests are not built here: the
providers send what an endpoint accepts, whatever the conversation.
"""
