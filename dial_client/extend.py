"""The names for providers, tool formats, stores, approvers, callbacks and middleware of your own.

`dial_client` has the names that most programs need, and `dial_client.testing` those for tests. Importing this module is
cheap: each name of ``extend.pyi`` is imported from its module when it is first used.
"""

from dial_client.runtime.public_names import attach_names

__all__, __getattr__, __dir__ = attach_names(globals())
