"""The entries of the audit log: one for each decision and each finished tool call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Origin:
    """The turn of an entry; empty where the turn is not known."""

    conversation: str = ""
    turn: str = ""


def common_origin(origins: Iterable[Origin]) -> Origin:
    """Return the origin that all entries share; an empty one where they differ or there are none."""
    distinct = set(origins)
    return distinct.pop() if len(distinct) == 1 else Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One decision, or one finished call. Names are those of servers and models, unchanged."""

    event: str
    """``decision`` and ``call`` for tool calls; ``elicitation`` and ``sampling`` for requests of servers."""
    id: str
    """A random id, the same for the decision and the end of a call."""
    origin: Origin = field(default_factory=Origin)
    call: str = ""
    """The id of the tool call, as the model gives it."""
    server: str = ""
    """The server's name in the configuration; empty for the host's own tools."""
    tool: str = ""
    """The tool's own name at that server; for a tool that is not offered, the requested name."""
    arguments: Mapping[str, Any] | str | None = None
    """The arguments; a text where they are not a JSON object. None where another entry of this id has them."""
    decision: str = ""
    """``allowed``, ``denied`` or ``cancelled``; for an elicitation the action of the answer."""
    decided_by: str = ""
    """The person, program or rule that decided."""
    waited: float | None = None
    """Seconds until the approver answered; None where there was no question."""
    outcome: str = ""
    """``ok``, a `messages.Failure`, with ``tool_error`` for a failure the tool itself reports, ``cancelled``, or
    ``error`` for a failure of the program."""
    duration: float | None = None
    """Seconds the call took, without the wait for approval."""
    result_bytes: int | None = None
    """Bytes of the whole result, texts in UTF-8 and attachments in base64; None where the server sent none."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))


class AuditRecorder(Protocol):
    """Keeps audit entries."""

    def record(self, entry: AuditEntry) -> None:
        """Keep an entry before returning. An exception is logged, and changes nothing for the call."""
