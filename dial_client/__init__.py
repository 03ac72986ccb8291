"""An MCP host: puts MCP servers behind any chat model.

Importing this package is cheap: each public name of ``__init__.pyi`` is imported from its module when it is first used.
"""

from dial_client.runtime.public_names import attach_names

__version__ = "0.3.0"
__all__, __getattr__, __dir__ = attach_names(globals())
