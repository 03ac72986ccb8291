"""Recorded answers of endpoints, one for each format, and how this package and the vendors' SDKs parse them.

`chat.jsonl`, `responses.jsonl` and `messages.jsonl` have one answer a line, taken from the documentation of the vendors
and from answers of real endpoints::

    {"name": "a call, streamed", "events": [{…}, {…}]}

An answer has ``events`` (server-sent events without their framing), ``body`` (one JSON text) or ``sse`` (the raw text).
It has a ``status`` if that is not 200, and ``asked`` (``stream`` or ``whole``) if the endpoint sends a different form
than the request asked for. This package and the SDK must parse an answer alike. If they differ, ``why`` says why this
package is right, and ``ours`` has the fields of its result that differ.

``python -m tests.recordings add FILE`` adds the answers of a recording (``dial-chat --record FILE``).
"""
