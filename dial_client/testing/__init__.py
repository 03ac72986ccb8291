"""Helpers to test programs that use this package: scripted models, recordings, assertions, and a network block.

`ScriptedProvider` is a model with scripted replies. The fixture ``dial_recording`` of the pytest plugin yields a
`DialRecording`, whose clients are recorded once, with ``pytest --dial-record``, and replayed afterwards.

Each name is imported from its module when it is first used: every run of pytest imports this package for its plugin.
"""

from dial_client.runtime.public_names import attach_names

__all__, __getattr__, __dir__ = attach_names(globals())
