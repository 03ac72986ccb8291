"""A script, as it comes in a stream and in one piece, and what has to come of it.

Where an endpoint can say a thing in a stream only (a connection that breaks in the middle, bytes that are split), both
forms are the same: there are endpoints that answer with a stream whatever was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dial_client.turn_data.limits import Limits, StopReason
from tests.support.model_endpoint import Call, Raw, Say, _chat, _messages, _responses

Ran = tuple[tuple[str, dict[str, Any]], ...]

A, B = ("echo", {"text": "a"}), ("echo", {"text": "b"})
BOTH = (A, B)
CALLS = (Call("echo", {"text": "a"}, "a"), Call("echo", {"text": "b"}, "b"))
DONE = "Done."
TRUNCATED, REFUSED = StopReason.TRUNCATED, StopReason.REFUSED


_WRITERS = {"chat": _chat, "responses": _responses, "messages": _messages}


@dataclass(frozen=True)
class Case:
    """A script, and what has to come of it."""

    streamed: Sequence[Any]
    whole: Sequence[Any] = ()
    """The replies where nobody asked for a stream; empty for the same ones."""
    ran: Ran = ()
    """The calls that reach the server."""
    text: str = DONE
    """The answer; of an error what it says."""
    stop: StopReason | None = StopReason.ANSWERED
    """None for an error."""
    limits: Limits = field(default_factory=Limits)
    repeats: bool = False


def wire(name: str, raw: Raw, **more: Any) -> dict[str, Any]:
    """Return the reply of a script that an endpoint's answer is."""
    return {"wire": name, "body": b"".join(raw.chunks).decode(), **more}


def write_reply(name: str, say: Say, **expected: Any) -> Case:
    """Return a reply in the words of a wire, in both forms; behind calls comes the answer."""
    write = _WRITERS[name]
    rest = [DONE] if say.calls else []
    streamed, whole = wire(name, write(say, stream=True)), wire(name, write(say, stream=False))
    return Case([streamed, *rest], [whole, *rest], **expected)


def same(*replies: Any, **expected: Any) -> Case:
    return Case(replies, **expected)


def cut(name: str, say: Say, keep: int) -> dict[str, Any]:
    """Return the first events of a stream; behind them the connection breaks."""
    write = _WRITERS[name]
    return wire(name, Raw(write(say, stream=True).chunks[:keep]), **{"break": True})
