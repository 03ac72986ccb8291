"""What a function that is a tool knows of its call, and can ask for while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyio import from_thread

from dial_client.audit.call_audit import new_id, record
from dial_client.audit.entries import AuditEntry, Origin
from dial_client.callbacks.elicitation_form import Form
from dial_client.callbacks.server_callbacks import ClientFeatures, Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.servers.session_calls import OnProgress
from dial_client.turn_data import call_context
from dial_client.turn_data.call_context import CallContext

FUNCTIONS = "functions"
"""The name that functions have in place of a server's: in events, in patterns of approval, in the audit log."""


class CallCancelled(Exception):
    """The call of a function is over: its turn was cancelled, or the time of the call is up."""


class Context:
    """The call that a function answers. A parameter with this annotation receives it; the model does not see that.

    The methods whose names end in ``_sync`` are for functions without ``async``, which run in a thread of their own.

    Args:
        tool: the name of the function's tool.
        on_progress: receives the progress.
        features: the callbacks of the client.
    """

    def __init__(self, tool: str, on_progress: OnProgress, features: ClientFeatures) -> None:
        self.tool = tool
        """The name of the tool."""
        self._on_progress = on_progress
        self._features = features
        self._call: CallContext | None = call_context.current()
        self._is_over = False

    @property
    def turn_id(self) -> str:
        """The id of the turn that makes the call; empty for a call outside of any."""
        return self._origin.turn

    @property
    def conversation_id(self) -> str:
        """The id of the turn's conversation; empty for none."""
        return self._origin.conversation

    @property
    def is_cancelled(self) -> bool:
        """True if the call was cancelled or has ended. A thread cannot be stopped: long functions look here."""
        return self._is_over

    def raise_if_cancelled(self) -> None:
        """Raise an error if `is_cancelled`.

        Raises:
            CallCancelled: the call is over.
        """
        if self._is_over:
            raise CallCancelled("the call is over")

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress: a `ToolCallProgress` for readers, and the time of the call begins anew.

        Args:
            progress: what is done, in any unit; it grows.
            total: what is to be done, in the same unit; None if unknown.
            message: the current activity, for people.
        """
        self.raise_if_cancelled()
        await self._on_progress(progress, total, message)

    def report_progress_sync(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress from a thread, as `report_progress`."""
        self.raise_if_cancelled()
        from_thread.run(self.report_progress, progress, total, message)

    async def elicit(self, message: str, schema: Mapping[str, Any] | type[Any]) -> ElicitationAnswer:
        """Ask the user by the ``elicit`` callback of the client, and return the answer; no time limit runs meanwhile.

        Args:
            message: the question.
            schema: the form: a flat JSON Schema, or a pydantic model or dataclass with fields of simple types.

        Raises:
            CallCancelled: the call is over.
            RuntimeError: the client has no such callback.
            ValueError: the answer does not fit the form.
        """
        self.raise_if_cancelled()
        action = "failed"
        try:
            answer = await self._ask(message, _to_schema(schema))
            action = ElicitationAction(answer.action).value
        finally:
            self._record(action)
        return answer

    def elicit_sync(self, message: str, schema: Mapping[str, Any] | type[Any]) -> ElicitationAnswer:
        """Ask the user from a thread, and return the answer, as `elicit`."""
        self.raise_if_cancelled()
        return from_thread.run(self.elicit, message, schema)

    def end(self) -> None:
        """Record that the call was cancelled or has ended."""
        self._is_over = True

    @property
    def _origin(self) -> Origin:
        return self._call.origin if self._call is not None else Origin()

    async def _ask(self, message: str, schema: Mapping[str, Any]) -> ElicitationAnswer:
        if self._features.elicit is None:
            raise RuntimeError("the user cannot be asked: the client has no `Callbacks.elicit`")
        form = Form(schema)
        question = Elicitation(FUNCTIONS, message, schema, None, form.defaults, (), (self.tool,))
        with call_context.waiting_for_a_person([self._call] if self._call is not None else []):
            answer = await self._features.elicit(question)
        if answer.action != ElicitationAction.ACCEPT:
            return answer
        content = form.filled(answer.content)
        if problems := form.problems(content):
            raise ValueError(f"the answer does not fit the form: {'; '.join(problems)}")
        return ElicitationAnswer(ElicitationAction.ACCEPT, content)

    def _record(self, action: str) -> None:
        """Record the action of an answer, without its content."""
        entry = AuditEntry(
            event="elicitation",
            id=new_id(),
            origin=self._origin,
            server=FUNCTIONS,
            tool=self.tool,
            decision=action,
            decided_by="elicit callback",
        )
        record(self._features.audit.recorder, entry)


def _to_schema(schema: Mapping[str, Any] | type[Any]) -> Mapping[str, Any]:
    if isinstance(schema, Mapping):
        return schema
    from pydantic import TypeAdapter

    return TypeAdapter(schema).json_schema()
