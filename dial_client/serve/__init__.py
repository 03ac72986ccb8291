"""``dial-chat serve``: an HTTP API for other programs, and a web page.

`application` connects the parts, `security` decides on access. `conversation_routes` and `openai_endpoint` are the two
APIs, `human_input` handles requests that need a user's answer, `static_files` serves the web page in ``page/``
as one script.
`cluster` shares turns among processes over one database, `http_server` runs the application. Only the command
``dial-chat serve`` imports this package.
"""
