"""``dial-chat serve``: an HTTP API for other programs, and a web page.

`web_app` builds all parts for a client, `application` connects them, `security` decides on access.
`conversation_routes` is the API of conversations, `model_api` has those of models.
`human_input` handles requests that need a user's answer, `static_files` serves the web page in ``page/`` as one script.
`peers` are the other processes over one database, whose turns `remote_turns` reads and stops.
`http_server` runs the application of the command.

Programs import the names of ``__init__.pyi`` from here: `create_app` returns the whole as an ASGI application, which
the command runs too. Each is imported from its module when it is first used.
"""

from dial_client.runtime.public_names import attach_names

__all__, __getattr__, __dir__ = attach_names(globals())
