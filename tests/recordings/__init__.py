"""Answers of endpoints, one for each shape, and how they are read: by this package, and by the vendors' SDKs.

`chat.jsonl`, `responses.jsonl` and `messages.jsonl` have one answer a line, written after the vendors' documentation
and after shapes seen in the field::

    {"name": "a call, streamed", "events": [{…}, {…}]}

An answer is ``events`` (server-sent events, to be framed), ``body`` (one JSON text) or ``sse`` (the text as it is),
with a ``status`` if that is not 200, and with ``asked`` (``stream`` or ``whole``) if the endpoint sends another form
than it was asked for. Both readings of an answer must be the same. Where they are not, ``why`` says why ours is right,
and ``ours`` has the fields of our reading that differ.

``python -m tests.recordings add FILE`` adds the answers of a recording (``dial-chat --record FILE``).
"""
