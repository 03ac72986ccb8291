"""Requests of clients that wait for input, in revision 2026-07-28, which has no requests from servers to clients.

A question is the answer to the client's request (``InputRequiredResult``), and the client repeats the request with what
its user has said. Meanwhile the call at the server goes on in a task of the gateway, because only the server could
resume it. The number of such calls, and the time that they wait, are limited: a client may never come back.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    InputResponses,
)

from dial_client.gateway.client_requests import ANSWER_SECONDS, ClientRequest, is_answer
from dial_client.gateway.client_session import ClientSession
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

# The most requests that wait at once, of all clients and of one client.
MAX_SUSPENDED, MAX_OF_CLIENT = 200, 32
# Seconds that a request waits for its repetition; then it is cancelled at the server.
SUSPENDED_SECONDS = ANSWER_SECONDS

ResultT = TypeVar("ResultT")

# The member of a request's state that names the suspended request.
REQUEST = "request"
_LOST = (
    "The request waited for an answer, and does not any more: the gateway was restarted, or the answer came too late. "
    "The server may have done a part of its work. Make the request again if that is safe."
)


class CallLost(MCPError):
    """The request that a state names does not wait any more. The message is for the caller."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, _LOST)


@dataclass(eq=False, slots=True)
class _Question:
    """A request to the client, and its answer."""

    request: InputRequest
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: InputResponse | ErrorData | None = None


class SuspendableRequest(ClientRequest, Generic[ResultT]):
    """A request of a client that is answered with the questions that came up, and goes on when it is repeated.

    Args:
        session: The client.
        context: The SDK's context of the request.
        admits: Returns whether the request may wait for its client.
    """

    def __init__(
        self, session: ClientSession, context: ServerRequestContext[Any, Any], admits: Callable[[], bool]
    ) -> None:
        super().__init__(session, context)
        self.round = 0
        """The number of times that the client was asked."""
        self._admits = admits
        self._questions: dict[str, _Question] = {}
        self._count = 0
        # Set when a question or the end comes, and when the client is back; None as long as nobody waits for that.
        self._changed: anyio.Event | None = None
        self._attached: anyio.Event | None = None
        self.result: ResultT | None = None
        """The result; None before it is there, and if the request has failed or was cancelled."""
        self.error: Exception | None = None
        """What the answer to the request has raised."""
        self.is_over = False
        """True once the request has ended."""

    @cached_property
    def id(self) -> str:
        """The id in the state that the client sends back; most requests end without any."""
        return secrets.token_hex(16)

    @cached_property
    def scope(self) -> anyio.CancelScope:
        """Cancelled if the client does not want the result any more."""
        return anyio.CancelScope()

    @property
    def is_resumable(self) -> bool:
        """True: the answers come with the repeated request. A server's question to a program is asked in its call."""
        return not self.runs_program

    @property
    def defers_approvals(self) -> bool:
        """True: a call, and a program with all that it has done, are decided when the request is repeated."""
        return True

    @property
    def is_suspended(self) -> bool:
        """True if the client was asked, and has not come back."""
        return not self.is_over and not self.is_attached

    @property
    def open_questions(self) -> Mapping[str, InputRequest]:
        """The requests that the client has to answer, by their keys."""
        return {key: question.request for key, question in self._questions.items()}

    async def ask(self, request: InputRequest) -> InputResponse | ErrorData:
        """Return the answer that the client's next request has with it."""
        if not self._admits():
            log.warning("too_many_suspended_calls", client=self.session.client)
            return ErrorData(code=INVALID_REQUEST, message="Too many requests wait for an answer of the user")
        self._count += 1
        key, question = f"question-{self._count}", _Question(request)
        self._questions[key] = question
        self._notify()
        try:
            await question.answered.wait()
        finally:
            self._questions.pop(key, None)
        assert question.answer is not None
        return question.answer

    async def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client about the progress, if it waits for the result now."""
        if self.is_attached:
            await super().report(progress, total, message)

    async def run(self, make: Callable[[], Awaitable[ResultT]]) -> None:
        """Answer the request, in a task of its own."""
        try:
            with self.scope:
                self.result = await make()
        except Exception as error:  # noqa: BLE001 - raised again in the task that the client waits for
            self.error = error
        finally:
            self.is_over = True
            self._notify()

    async def wait(self) -> ResultT | Mapping[str, InputRequest]:
        """Return the result, or the requests that the client has to answer first.

        Raises:
            CallLost: The request was cancelled.
            Exception: Raised while the request was answered.
        """
        while not self.is_over and not self._questions:
            self._changed = anyio.Event()
            await self._changed.wait()
            # A server may ask several questions at once, each in a task of its own: let all of these run.
            await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if self.is_over:
            if self.result is None:
                raise CallLost
            return self.result
        return self.open_questions

    async def wait_for_client(self) -> None:
        """Wait until a client waits for the result; after `SUSPENDED_SECONDS` the result is given up."""
        if self._attached is None or self.is_attached or (self.result is None and self.error is None):
            return
        with anyio.move_on_after(SUSPENDED_SECONDS):
            await self._attached.wait()

    def suspend(self) -> None:
        """Let the client go with its questions."""
        self.round += 1
        self.is_attached, self._attached = False, anyio.Event()
        self.scope.deadline = anyio.current_time() + SUSPENDED_SECONDS

    def resume(self, context: ServerRequestContext[Any, Any], responses: InputResponses | None) -> None:
        """Go on with the answers of a repeated request. Questions without an answer stay open.

        Raises:
            MCPError: An answer is not one to its question; the request goes on waiting.
        """
        self.pass_on(responses)
        self.context = context
        self._progress = 0.0  # of another progress token
        self.is_attached = True
        if self._attached is not None:
            self._attached.set()
        self.scope.deadline = math.inf

    def pass_on(self, responses: InputResponses | None) -> None:
        """Pass the answers of the client on to the tasks that have asked. Questions without an answer stay open.

        Raises:
            MCPError: An answer is not one to its question; no answer is given.
        """
        answers = {key: answer for key, answer in (responses or {}).items() if key in self._questions}
        for key, answer in answers.items():
            if not is_answer(self._questions[key].request, answer):
                raise MCPError(INVALID_PARAMS, f"inputResponses: {key!r} is not an answer to its request")
        for key, answer in answers.items():
            question = self._questions.pop(key)
            question.answer = answer
            question.answered.set()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()


class SuspendedCalls:
    """The requests of all clients that wait for input, in this process."""

    def __init__(self) -> None:
        self.on_resume: Callable[[SuspendableRequest[Any], ServerRequestContext[Any, Any]], None] = lambda *_: None
        """Called with each request that goes on, and the context of the client's request that repeats it."""
        self._requests: dict[str, SuspendableRequest[Any]] = {}

    def open(self, session: ClientSession, context: ServerRequestContext[Any, Any]) -> SuspendableRequest[Any]:
        """Return a new request of a client."""
        return SuspendableRequest(session, context, lambda: self._admits(session))

    def _admits(self, session: ClientSession) -> bool:
        suspended = [request for request in self._requests.values() if request.is_suspended]
        own = sum(1 for request in suspended if request.session is session)
        return len(suspended) < MAX_SUSPENDED and own < MAX_OF_CLIENT

    async def answer(
        self, tasks: BackgroundTasks, request: SuspendableRequest[ResultT], make: Callable[[], Awaitable[ResultT]]
    ) -> ResultT | InputRequiredResult:
        """Answer a request: by its result, or by the questions that come up first.

        Raises:
            CallLost: The request was cancelled.
            Exception: Raised by `make`.
        """

        async def run() -> None:
            try:
                await request.run(make)
                await request.wait_for_client()
            finally:
                self._requests.pop(request.id, None)

        self._requests[request.id] = request
        tasks.start_soon(run)
        return await self._wait(request)

    def find(self, session: ClientSession, state: Mapping[str, Any]) -> SuspendableRequest[Any]:
        """Return the request that a state names, of this client.

        Raises:
            CallLost: The request does not wait any more, or is not one of this client.
            MCPError: The state is not that of the last questions.
        """
        request = self._requests.get(str(state.get(REQUEST)))
        if request is None or request.session is not session:
            raise CallLost
        if request.is_attached or state.get("round") != request.round:
            raise MCPError(INVALID_PARAMS, "requestState: these questions were answered already")
        return request

    async def resume(
        self,
        request: SuspendableRequest[ResultT],
        context: ServerRequestContext[Any, Any],
        responses: InputResponses | None,
    ) -> ResultT | InputRequiredResult:
        """Go on with a request that its client has repeated.

        Raises:
            CallLost: The request was cancelled.
            MCPError: An answer does not fit its question.
        """
        request.resume(context, responses)
        self.on_resume(request, context)
        return await self._wait(request)

    async def _wait(self, request: SuspendableRequest[ResultT]) -> ResultT | InputRequiredResult:
        try:
            result = await request.wait()
        except anyio.get_cancelled_exc_class():
            request.scope.cancel()  # the client has cancelled its request, or is gone
            raise
        if not isinstance(result, Mapping):
            return result
        request.suspend()
        state = json.dumps({REQUEST: request.id, "round": request.round})
        return InputRequiredResult(input_requests=dict(result), request_state=state)
