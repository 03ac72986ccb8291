"""A scripted exchange in its streamed and its unstreamed form, and the expected result.

Some behaviour exists only in a stream (a connection that breaks in the middle, bytes that are split). Then both forms
are the same: some endpoints answer with a stream even if the request did not ask for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.inner import Limits, StopReason
from tests.support.model_endpoint import Call, Raw, Say, write_chat, write_messages, write_responses

Ran = tuple[tuple[str, dict[str, Any]], ...]

A, B = ("echo", {"text": "a"}), ("echo", {"text": "b"})
BOTH = (A, B)
CALLS = (Call("echo", {"text": "a"}, "a"), Call("echo", {"text": "b"}, "b"))
DONE = "Done."
TRUNCATED, REFUSED = StopReason.TRUNCATED, StopReason.REFUSED


_WRITERS = {"chat": write_chat, "responses": write_responses, "messages": write_messages}


@dataclass(frozen=True)
class Case:
    """A scripted exchange, and the expected result."""

    streamed: Sequence[Any]
    whole: Sequence[Any] = ()
    """The replies to requests without streaming; empty if they are those of `streamed`."""
    ran: Ran = ()
    """The calls that the server must receive."""
    text: str = DONE
    """The expected answer, or the expected text of the error."""
    stop: StopReason | None = StopReason.ANSWERED
    """The expected stop reason; None if an error is expected."""
    limits: Limits = field(default_factory=Limits)
    repeats: bool = False


def wire(name: str, raw: Raw, **more: Any) -> dict[str, Any]:
    """Return the scripted reply for a raw answer of an endpoint."""
    return {"wire": name, "body": b"".join(raw.chunks).decode(), **more}


def write_reply(name: str, say: Say, **expected: Any) -> Case:
    """Return a reply in the format of an API, streamed and unstreamed; an answer follows after calls."""
    write = _WRITERS[name]
    rest = [DONE] if say.calls else []
    streamed, whole = wire(name, write(say, stream=True)), wire(name, write(say, stream=False))
    return Case([streamed, *rest], [whole, *rest], **expected)


def same(*replies: Any, **expected: Any) -> Case:
    return Case(replies, **expected)


def cut(name: str, say: Say, keep: int) -> dict[str, Any]:
    """Return the first events of a stream, after which the connection breaks."""
    write = _WRITERS[name]
    return wire(name, Raw(write(say, stream=True).chunks[:keep]), **{"break": True})
