"""The `Context` of a function that is a tool: its call, progress reports, and questions to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyio import from_thread

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import Origin, record_request
from dial_client.hooks.call_context import CallContext
from dial_client.hooks.elicitation_form import Form
from dial_client.hooks.server_callbacks import Elicitation, ElicitationAction, ElicitationAnswer
from dial_client.messages.citations import Citation
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import OnCallProgress
from dial_client.settings.argument_types import describe_type

# The server name of functions in events, in approval patterns and in the audit log.
FUNCTIONS = "functions"


class ToolError(Exception):
    """An error whose text the model reads: a function raises it to say what is wrong, and what would be right.

    Of any other exception in a function the model reads only the type; the log and `ToolCallRecord.exception` have it.
    """


class CallCancelled(Exception):
    """The call of a function has ended: its turn was cancelled, or the timeout of the call has passed."""


class Context:
    """The call that a function answers, passed to a parameter with this annotation, which the model does not see.

    The methods whose names end in ``_sync`` are for functions without ``async``, which run in a thread.

    Args:
        tool: The name of the function's tool.
        on_progress: Receives the progress.
        capabilities: The callbacks of the client.
    """

    def __init__(self, tool: str, on_progress: OnCallProgress, capabilities: ClientCapabilities) -> None:
        self.tool = tool
        """The name of the tool."""
        self._on_progress = on_progress
        self._capabilities = capabilities
        self._call: CallContext | None = call_context.find_current()
        self._is_over = False
        self.citations: list[Citation] = []
        """The sources that the function has cited so far."""

    @property
    def turn_id(self) -> str:
        """The id of the turn that makes the call; empty for a call outside of a turn."""
        return self._origin.turn

    @property
    def conversation_id(self) -> str:
        """The id of the turn's conversation; empty if it has none."""
        return self._origin.conversation

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled or has ended. Long functions in threads have to check it and return."""
        return self._is_over

    def raise_if_cancelled(self) -> None:
        """Raise an error if the call was cancelled or has ended.

        Raises:
            CallCancelled: The call was cancelled or has ended.
        """
        if self._is_over:
            raise CallCancelled("the call is over")

    def cite(self, citation: Citation) -> None:
        """Add a source of the result, which becomes a source of the answer too: ``turn.citations``.

        Raises:
            CallCancelled: The call was cancelled or has ended.
            TypeError: The argument is no `Citation`.
        """
        self.raise_if_cancelled()
        given: Any = citation  # callers without a type checker may pass any type
        if not isinstance(given, Citation):
            raise TypeError(f"cite takes a Citation(…), not {describe_type(given)}")
        self.citations.append(citation)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress: emit a `ToolCallProgress`, and restart the timeout of the call.

        Args:
            progress: The completed amount, in any unit; it has to increase with each report.
            total: The total amount, in the same unit; None if unknown.
            message: The current activity, for the user.
        """
        self.raise_if_cancelled()
        await self._on_progress(progress, total, message)

    def report_progress_sync(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress from a thread, as `report_progress` does."""
        self.raise_if_cancelled()
        from_thread.run(self.report_progress, progress, total, message)

    async def elicit(self, message: str, schema: Mapping[str, Any] | type[Any]) -> ElicitationAnswer:
        """Ask the user with the ``elicit`` callback of the client, and return the answer; timeouts pause meanwhile.

        Args:
            message: The question.
            schema: The form: a flat JSON Schema, or a pydantic model or dataclass with fields of simple types.

        Raises:
            CallCancelled: The call was cancelled or has ended.
            RuntimeError: The client has no ``elicit`` callback.
            ValueError: The answer does not fit the form.
        """
        self.raise_if_cancelled()
        action = "failed"
        try:
            if not isinstance(schema, Mapping):
                from pydantic import TypeAdapter

                schema = TypeAdapter(schema).json_schema()
            answer = await self._ask(message, schema)
            action = ElicitationAction(answer.action).value
        finally:
            recorder = self._capabilities.audit.recorder
            record_request(recorder, "elicitation", FUNCTIONS, [self.tool], [self._origin], action, "elicit callback")
        return answer

    def elicit_sync(self, message: str, schema: Mapping[str, Any] | type[Any]) -> ElicitationAnswer:
        """Ask the user from a thread, as `elicit` does."""
        self.raise_if_cancelled()
        return from_thread.run(self.elicit, message, schema)

    def end(self) -> None:
        """Record that the call was cancelled or has ended."""
        self._is_over = True

    @property
    def _origin(self) -> Origin:
        return self._call.origin if self._call is not None else Origin()

    async def _ask(self, message: str, schema: Mapping[str, Any]) -> ElicitationAnswer:
        if self._capabilities.callbacks.elicit is None:
            raise RuntimeError("the user cannot be asked: the client has no `Callbacks.elicit`")
        form = Form(schema)
        origin = self._origin
        question = Elicitation(
            FUNCTIONS,
            message,
            schema,
            None,
            form.defaults,
            tools=(self.tool,),
            turn_id=origin.turn,
            conversation_id=origin.conversation,
            owner=origin.owner,
        )
        with call_context.pause_deadlines([self._call] if self._call is not None else []):
            answer = await self._capabilities.callbacks.elicit(question)
        if answer.action != ElicitationAction.ACCEPT:
            return answer
        content = form.fill(answer.content)
        if problems := form.find_problems(content):
            raise ValueError(f"the answer does not fit the form: {'; '.join(problems)}")
        return ElicitationAnswer(ElicitationAction.ACCEPT, content)
