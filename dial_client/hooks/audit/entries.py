"""The entries of the audit log, one for each decision and each finished tool call, and the recorder that makes them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from dial_client.messages.message import Content, Failure, TextPart, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.runtime.logs import get_logger


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a call comes from: its conversation, its turn, the person that the turn is for, and the client program."""

    conversation: str = ""
    """The id of the conversation; empty if there is none."""
    turn: str = ""
    """The id of the turn; empty if there is none."""
    owner: str = ""
    """The person, in the words of the program; empty if the program does not name one."""
    client: str = ""
    """The MCP client that made the call through the gateway, as it names itself, with its version:
    ``claude-code 2.1.0``; empty for a call of this program."""
    agent: str = ""
    """The path of the agent that makes the call, from the agent of the turn itself: ``main > reviewer``; empty for the
    turn itself."""
    agent_calls: tuple[str, ...] = ()
    """The ids of the calls of the agents on this path, the outermost first."""

    @property
    def party(self) -> tuple[str, str]:
        """What one person answers for: the calls of the owner, else of the conversation, else of the turn.

        For a client of the gateway these are the calls of its session. Two empty texts if nothing is known.
        """
        owner = ("owner", "" if self.client else self.owner)
        named = (owner, ("conversation", self.conversation), ("turn", self.turn))
        return next((pair for pair in named if pair[1]), ("", ""))


def find_common_origin(origins: Iterable[Origin]) -> Origin:
    """Return what all origins share; an empty text for each part in which they differ, or if there are none."""
    distinct = set(origins)
    names = ("conversation", "turn", "owner", "client", "agent", "agent_calls")
    parts: dict[str, set[Any]] = {name: {getattr(origin, name) for origin in distinct} for name in names}
    return Origin(**{name: values.pop() for name, values in parts.items() if len(values) == 1})


@dataclass(slots=True, kw_only=True)  # not frozen, which would take three times as long: two are made for each call
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
    """``allowed``, ``denied``, ``deferred`` or ``cancelled``; for an elicitation, the action of the answer, or
    ``asked`` if a client of the gateway got the question and answers the server itself."""
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


log = get_logger(__name__)


def record(recorder: AuditRecorder | None, entry: AuditEntry) -> None:
    """Record an entry. An error of the recorder is only logged, so that the call continues."""
    if recorder is None:
        return
    try:
        recorder.record(entry)
    except Exception as error:  # noqa: BLE001 - recorders are code of the embedding program
        log.warning("audit_failed", error=type(error).__name__)


def create_id() -> str:
    """Return a random id for an entry."""
    return os.urandom(8).hex()


def record_request(
    recorder: AuditRecorder | None,
    event: str,
    server: str,
    tools: Iterable[str],
    origins: Iterable[Origin],
    decision: str,
    decided_by: str,
) -> None:
    """Record the decision about a request of a server, without the user's answer, which may be a secret.

    Args:
        recorder: The recorder; None to record nothing.
        event: The kind of request: ``elicitation`` or ``sampling``.
        server: The server's name in the configuration.
        tools: The tools whose calls the request may belong to.
        origins: The origins of these calls.
        decision: The decision.
        decided_by: The source of the decision.
    """
    origin = find_common_origin(origins)
    tool = ", ".join(tools)
    entry = AuditEntry(
        event=event, id=create_id(), origin=origin, server=server, tool=tool, decision=decision, decided_by=decided_by
    )
    record(recorder, entry)


@dataclass(eq=False, slots=True)  # not frozen, as it is made for each call
class TurnAudit:
    """Records the tool calls of one turn, or calls outside of turns."""

    recorder: AuditRecorder | None = None
    """The recorder of the entries; None to record nothing."""
    origin: Origin = Origin()

    def call(self, call: ToolCallRequest, spec: ToolSpec | None) -> CallAudit:
        """Return the audit of one call; `spec` is None for a tool that is not offered."""
        return CallAudit(self.recorder, self.origin, call, spec)


class CallAudit:
    """Records one call. If the context is left without a result, the call is recorded as cancelled or failed."""

    def __init__(
        self, recorder: AuditRecorder | None, origin: Origin, call: ToolCallRequest, spec: ToolSpec | None
    ) -> None:
        self._recorder, self._origin, self._call = recorder, origin, call
        self._server, self._tool = (spec.server, spec.tool) if spec is not None else ("", call.name)
        self._id = ""
        self._arguments: Mapping[str, Any] | str | None = None
        self._started_at = time.monotonic()
        self._asked_at: float | None = None
        # The bytes of a result that is handed on without being read here.
        self._passed_on: int | None = None
        self._is_over = recorder is None

    def __enter__(self) -> Self:
        if self._recorder is not None:
            self._id = create_id()
            self._arguments = self._call.arguments if self._call.unreadable is None else self._call.unreadable
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_over:
            return
        self._give_up_question()
        self._end("error" if kind is not None and issubclass(kind, Exception) else "cancelled", None)

    def record_question(self) -> None:
        """Record the time at which the approver is asked."""
        self._asked_at = time.monotonic()

    def record_decision(
        self, *, is_allowed: bool | None, decided_by: str, arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Record whether the call may run, None if that is decided later.

        `arguments` are the approver's, if they replace the model's, else None.
        """
        if self._recorder is None:
            return
        if arguments is not None:
            self._arguments = arguments
        by = decided_by or ("rules" if self._asked_at is None else "approver")
        self._write_decision("deferred" if is_allowed is None else "allowed" if is_allowed else "denied", by)

    def record_size(self, size: int) -> None:
        """Record the bytes of a result that is handed on, so that the `ToolCallResult` has no content."""
        self._passed_on = size

    def record_result(self, result: ToolCallResult) -> None:
        """Record the result of the call."""
        if self._is_over:
            return
        self._give_up_question()
        match result.failure:
            case None:
                self._end("ok", self._measure(result))
            case Failure.TOOL:
                self._end("tool_error", self._measure(result))
            case failure:
                self._end(failure.value, None)

    def _measure(self, result: ToolCallResult) -> int:
        return measure_size(result.content) if self._passed_on is None else self._passed_on

    def _give_up_question(self) -> None:
        if self._asked_at is not None:
            self._write_decision("cancelled", "")

    def _write_decision(self, decision: str, decided_by: str) -> None:
        now = time.monotonic()
        waited = None if self._asked_at is None else now - self._asked_at
        self._asked_at, self._started_at = None, now
        self._write(event="decision", decision=decision, decided_by=decided_by, waited=waited)
        self._arguments = None  # the entry of the decision has the arguments

    def _end(self, outcome: str, size: int | None) -> None:
        self._is_over = True
        duration = time.monotonic() - self._started_at
        self._write(outcome=outcome, duration=duration, result_bytes=size)

    def _write(self, event: str = "call", **fields: Any) -> None:
        entry = AuditEntry(
            event=event,
            id=self._id,
            origin=self._origin,
            call=self._call.id,
            server=self._server,
            tool=self._tool,
            arguments=self._arguments,
            **fields,
        )
        record(self._recorder, entry)


def measure_size(content: Content) -> int:
    """Return the size of a result in bytes, with texts in UTF-8 and attachments in base64, as the server sent them."""
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    return sum(measure_size(part.text) if isinstance(part, TextPart) else len(part.data) for part in content)
