"""The entries of the audit log: one for each decision and each finished tool call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Origin:
    """The conversation and the turn of an entry."""

    conversation: str = ""
    """The id of the conversation; empty for none."""
    turn: str = ""
    """The id of the turn; empty for none."""


def find_common_origin(origins: Iterable[Origin]) -> Origin:
    """Return the origin that all entries share; an empty origin if they differ or there are none."""
    distinct = set(origins)
    return distinct.pop() if len(distinct) == 1 else Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A decision, or a finished call. Names are unchanged from the server or the model."""

    event: str
    """The kind: ``decision`` or ``call`` for a tool call, ``elicitation`` or ``sampling`` for a server's request."""
    id: str
    """A random id, which the decision and the end of a call share."""
    origin: Origin = field(default_factory=Origin)
    call: str = ""
    """The model's id of the tool call."""
    server: str = ""
    """The server's name in the configuration; empty for the host's own tools."""
    tool: str = ""
    """The server's own name of the tool; for a tool that is not offered, the requested name."""
    arguments: Mapping[str, Any] | str | None = None
    """The arguments; a string if they are not a JSON object. None if another entry with this id has them."""
    decision: str = ""
    """``allowed``, ``denied`` or ``cancelled``; for an elicitation, the action of the answer."""
    decided_by: str = ""
    """The user, program or rule that decided."""
    waited: float | None = None
    """Seconds until the approver answered; None if the approver was not asked."""
    outcome: str = ""
    """The end of the call: ``ok``, ``tool_error`` if the tool reports a failure, another `Failure`, ``cancelled``, or
    ``error`` for an error of this program."""
    duration: float | None = None
    """Seconds that the call took, without the wait for approval."""
    result_bytes: int | None = None
    """The size of the result in bytes, texts in UTF-8 and attachments in base64; None if the server sent none."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The time of the event, in UTC."""


class AuditRecorder(Protocol):
    """Records audit entries."""

    def record(self, entry: AuditEntry) -> None:
        """Record an entry before returning. An exception is logged, and does not affect the call."""
