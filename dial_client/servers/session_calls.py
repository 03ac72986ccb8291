"""The calls of one session: made from any task; they fail when the session ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from dial_client.messages.errors import ServerError, ServerGone
from dial_client.servers import session_errors
from dial_client.servers.observable import Observable
from dial_client.servers.restart_policy import Exit, ExitKind
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.server_requests import ServerRequests
from dial_client.servers.session_errors import CallFailureKind, CallNotRun
from dial_client.servers.session_state import ObservableState

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult

FRESH_SECONDS = 2.0
"""Seconds to wait for news of a server: a tool list it announced, or the way its session ended."""
_REOPENED = "it sends requests of its own, which only the older protocol has: the session is reopened with that one"
_SESSION_LOST = "the server has forgotten the session; was it restarted?"

Answer = TypeVar("Answer")
OnCallProgress = Callable[[float, float | None, str | None], Awaitable[None]]


class SessionCalls:
    """Makes the calls of one session.

    Args:
        server: The server's name in the configuration.
        state: The session's state.
        requests: Answers the requests the server sends during a call.
        mask: Masks the server's secrets in errors.
    """

    def __init__(self, server: str, state: ObservableState, requests: ServerRequests, mask: SecretMask) -> None:
        self._server = server
        self._state = state
        self._requests = requests
        self._mask = mask
        self._in_flight: Observable[frozenset[anyio.CancelScope]] = Observable(frozenset())

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: OnCallProgress | None,
        *,
        is_own_session: bool = False,
    ) -> CallToolResult:
        """Call a tool of the server. There is no timeout; cancelling the call notifies the server.

        Args:
            tool: The server's own name for the tool.
            arguments: The arguments of the call.
            on_progress: Is called with each progress notification of the call.
            is_own_session: The session was opened for this call. If the server does not know its session id, another
                session would not help: the call fails, and the session stays.

        Raises:
            CallNotRun: The call did not reach the server.
            ServerGone: The connection broke before the result arrived.
            ServerError: The server refused the call, or sent an invalid result.
        """

        async def request(client: Client) -> CallToolResult:
            callback = cast("ProgressFnT | None", on_progress)
            return await client.call_tool(tool, dict(arguments), progress_callback=callback)

        return await self.ask(request, tool=tool, is_own_session=is_own_session)

    async def ask(
        self, request: Callable[[Client], Awaitable[Answer]], *, tool: str = "", is_own_session: bool = False
    ) -> Answer:
        """Send any request; raises as `call` does."""
        client = self._state.value.client
        if client is None:
            raise CallNotRun(self._server, self._state.value.reason)
        problem: Exception | None = None
        with anyio.CancelScope() as scope:
            self._in_flight.set(self._in_flight.value | {scope})
            try:
                return await self._requests.run_call(tool, partial(request, client))
            except Exception as error:  # noqa: BLE001 (every error becomes a ServerError)
                problem = error
            finally:
                self._in_flight.set(self._in_flight.value - {scope})
        if problem is None:
            raise self._build_lost_error()
        # A traceback would print the cause unmasked: an error with a secret is not chained.
        cause = problem if self._mask.mask_text(str(problem)) == str(problem) else None
        raise await self._to_error(problem, is_own_session=is_own_session) from cause

    async def drain(self, seconds: float) -> None:
        """Wait until no call is in flight, at most `seconds`."""
        if seconds:
            await self._in_flight.wait_until(lambda calls: not calls, seconds)

    def fail_all(self) -> None:
        """Cancel all calls in flight; their callers get `ServerGone`."""
        for scope in self._in_flight.value:
            scope.cancel()

    async def _to_error(self, error: Exception, *, is_own_session: bool) -> ServerError:
        """Return the error for the caller, and end the session if the error requires it."""
        failure = session_errors.classify_call_error(error, has_session_id=self._state.value.has_session_id)
        message = self._mask.mask_text(failure.message)
        match failure.kind:
            case CallFailureKind.NEEDS_OLDER_PROTOCOL:
                self._state.end(Exit(ExitKind.REOPENED, _REOPENED))
                return CallNotRun(self._server, _REOPENED)
            case (CallFailureKind.SESSION_REJECTED | CallFailureKind.SESSION_UNKNOWN) as kind:
                return self._to_session_error(kind, message, is_own_session=is_own_session)
            case CallFailureKind.UNSENT:
                if not self._in_flight.value:  # with calls in flight the server may only be busy: keep those calls
                    self._state.end(Exit(ExitKind.UNREACHABLE, message))
                return CallNotRun(self._server, message)
            case kind if kind is CallFailureKind.CONNECTION_CLOSED or self._state.value.is_breaking:
                # The session learns from other tasks how the server ended.
                await self._state.wait_until(lambda state: state.is_announced, FRESH_SECONDS)
                return self._build_lost_error()
            case CallFailureKind.BROKEN_OFF:
                return ServerGone(self._server, message)
            case _:
                return ServerError(self._server, message)

    def _to_session_error(self, kind: CallFailureKind, message: str, *, is_own_session: bool) -> ServerError:
        if is_own_session:
            return ServerError(self._server, message)
        self._state.end(Exit(ExitKind.DIED, _SESSION_LOST))
        error = CallNotRun if kind is CallFailureKind.SESSION_REJECTED else ServerGone
        return error(self._server, _SESSION_LOST)

    def _build_lost_error(self) -> ServerGone:
        return ServerGone(self._server, f"the call was lost, and may have had its effect: {self._state.value.reason}")
