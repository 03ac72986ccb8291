"""Log messages of the servers for the clients of the gateway, each from the level that the client has chosen.

Servers are asked for the most that any client wants; each client gets what it has chosen. A message goes to the client
whose request the server was answering. While a server answers several clients, nobody can tell whose message it is:
then no client gets it. A message outside of requests may be late, and about a request that has ended: it goes to a
client of the older revision if there is no other client; since 2026-07-28 there are no such messages.
"""

from __future__ import annotations

from collections import deque
from typing import Any, get_args
from weakref import WeakKeyDictionary

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types import LOG_LEVEL_META_KEY, EmptyResult, LoggingLevel, LoggingMessageNotification, SetLevelRequestParams

from dial_client.client.client_setup import ClientParts
from dial_client.gateway.client_requests import ClientRequest
from dial_client.gateway.client_session import DEFAULT_LEVEL, ClientSession, ClientSessions
from dial_client.gateway.client_tasks import ClientTasks
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.questions import Questions
from dial_client.hooks.audit.entries import Origin
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.runtime.logs import get_logger
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.server_requests import LogMessage
from dial_client.servers.status import Observable

log = get_logger(__name__)

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
# Seconds that the servers have to confirm a level, before the request of the client continues.
LEVEL_SECONDS = 2.0
# Seconds that one client has to accept a message: one that does not read delays only its own answer.
SEND_SECONDS = 5.0
# Messages that wait to be sent with one answer, and messages that are kept for a request whose client was asked
# something; of more, the last.
MAX_QUEUED, MAX_KEPT = 1_000, 100


class _Outbox:
    """The messages for one request of a client, or for its stream of notifications, which are sent in their order.

    Args:
        channel: The SDK's session of the request.
        is_request: True to send with the answer of the request, False for the stream of the client's session.
    """

    def __init__(self, channel: ServerSession, *, is_request: bool) -> None:
        self.channel = channel
        # The SDK takes any id for "the request of this channel".
        self._related = 0 if is_request else None
        self._messages: deque[LoggingMessageNotification] = deque(maxlen=MAX_QUEUED)
        self._is_sent = Observable(value=True)

    def put(self, notification: LoggingMessageNotification, tasks: BackgroundTasks) -> None:
        """Send a message after those before it, in a task."""
        self._messages.append(notification)
        if self._is_sent.value:
            self._is_sent.set(False)
            tasks.start_soon(self._send_all)

    async def _send_all(self) -> None:
        try:
            while self._messages:
                with anyio.fail_after(SEND_SECONDS):
                    await self.channel.send_notification(self._messages.popleft(), self._related)
        except Exception as error:  # noqa: BLE001 - a client that has gone, or does not read, disturbs nobody else
            log.debug("log_not_sent", error=type(error).__name__)
            self._messages.clear()
        finally:
            self._is_sent.set(True)

    async def wait_sent(self) -> None:
        """Wait until all messages are sent, at most `SEND_SECONDS`."""
        await self._is_sent.wait_until(bool, SEND_SECONDS)


class ClientLogs:
    """Answers ``logging/setLevel``, and sends the messages of the servers to the clients.

    A message is attributed when it arrives, and sent before the answer of the client's request. If the request waits
    for its client (2026-07-28), or has become a task, its messages are kept for the request that goes on with it.

    Args:
        parts: The servers, and the tasks that send messages.
        sessions: The clients.
        questions: Knows the requests that are being answered.
        tasks: The tasks of the clients.
    """

    def __init__(self, parts: ClientParts, sessions: ClientSessions, questions: Questions, tasks: ClientTasks) -> None:
        self._parts, self._servers, self._sessions, self._questions = parts, parts.servers, sessions, questions
        # The messages for the requests that are being answered, by the SDK's session of the request.
        self._outboxes: dict[ServerSession, _Outbox] = {}
        self._kept: WeakKeyDictionary[ClientRequest, deque[LoggingMessageNotification]] = WeakKeyDictionary()
        # The levels of requests of 2026-07-28 so far, each of which names its own.
        self._request_levels: set[LoggingLevel] = set()
        parts.servers.on_log_message = self.receive
        questions.suspended.on_resume = tasks.on_poll = self._send_kept

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {"logging/setLevel": (SetLevelRequestParams, self.set_level)}

    async def set_level(self, context: ServerRequestContext[Any, Any], params: SetLevelRequestParams) -> EmptyResult:
        """Set the level of a client; it has no effect on what other clients get."""
        self._sessions.find(context).log_level = params.level
        await self._update_servers()
        return EmptyResult()

    async def follow_request(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a request of a client, after the messages about it: middleware of the server."""
        context = ctx  # the SDK names the parameter
        if context.request_id is None or "/" not in context.method:  # a notification, the handshake, a ping
            return await call_next(context)
        level = _find_level(self._sessions.find(context), context)
        if is_modern(context.protocol_version):
            if level is not None and level not in self._request_levels:
                self._request_levels.add(level)
                await self._update_servers()
        elif level is not None and _is_more(level, self._servers.log_level):
            await self._update_servers()  # the first request of a client that wants more than those before
        try:
            return await call_next(context)
        finally:
            if (outbox := self._outboxes.pop(context.session, None)) is not None:
                await outbox.wait_sent()

    async def _update_servers(self) -> None:
        """Ask the servers for the most that any client wants."""
        chosen = {session.log_level or DEFAULT_LEVEL for session in self._list_legacy()} | self._request_levels
        level = min(chosen, key=LEVELS.index, default=None)
        if level is not None and level != self._servers.log_level:
            await self._servers.set_log_level(level, LEVEL_SECONDS)

    def receive(self, message: LogMessage) -> None:
        """Take a message of a server, for the client that it is for."""
        logger = message.params.logger
        name = f"{message.server}/{logger}" if logger else message.server
        notification = LoggingMessageNotification(params=message.params.model_copy(update={"logger": name}))
        if not message.origins:
            self._send_outside(notification)
        elif (request := self._find_request(message.origins)) is None:
            return
        elif request.is_attached:
            self._send(request.session, request.context, notification)
        else:
            self._kept.setdefault(request, deque(maxlen=MAX_KEPT)).append(notification)

    def _send(
        self, session: ClientSession, context: ServerRequestContext[Any, Any], notification: LoggingMessageNotification
    ) -> None:
        """Send a message with the answer of a request, if its level is high enough."""
        if _is_heard(notification, _find_level(session, context)):
            channel = context.session
            outbox = self._outboxes.setdefault(channel, _Outbox(channel, is_request=True))
            outbox.put(notification, self._parts.require_tasks())

    def _send_kept(self, request: ClientRequest, context: ServerRequestContext[Any, Any]) -> None:
        """Send the messages that came while nobody waited for the result of a request."""
        for notification in self._kept.pop(request, ()):
            self._send(request.session, context, notification)

    def _send_outside(self, notification: LoggingMessageNotification) -> None:
        """Send a message that is about no request to the only client, if there is only one."""
        sessions = list(self._sessions)
        if len(sessions) != 1 or is_modern(sessions[0].protocol_version):
            return
        if _is_heard(notification, sessions[0].log_level or DEFAULT_LEVEL):
            _Outbox(sessions[0].channel, is_request=False).put(notification, self._parts.require_tasks())

    def _find_request(self, origins: tuple[Origin, ...]) -> ClientRequest | None:
        """Return the request that gets a message about requests of these origins; None if it is not certain."""
        if len({origin.conversation for origin in origins}) > 1:
            return None
        # Of several requests of one client, the first: the message may be about any of them. Since 2026-07-28 two
        # windows of one program share a session over HTTP, and may use the same id: then nobody gets it.
        found = (self._questions.find_requests(origin.conversation, origin.turn) for origin in origins)
        requests = next(filter(None, found), ())
        return requests[0] if len(requests) == 1 else None

    def _list_legacy(self) -> list[ClientSession]:
        return [session for session in self._sessions if not is_modern(session.protocol_version)]


def _find_level(session: ClientSession, context: ServerRequestContext[Any, Any]) -> LoggingLevel | None:
    """Return the lowest level of messages about a request that its client gets; None for no messages."""
    if not is_modern(context.protocol_version):
        return session.log_level or DEFAULT_LEVEL
    named = (context.meta or {}).get(LOG_LEVEL_META_KEY)
    return None if named is None else next((known for known in LEVELS if known == named), None)


def _is_heard(notification: LoggingMessageNotification, level: LoggingLevel | None) -> bool:
    return level is not None and not _is_more(notification.params.level, level)


def _is_more(level: LoggingLevel, than: str | None) -> bool:
    """Return whether a level has more messages than another one; False if the other one is not known."""
    return than in LEVELS and LEVELS.index(than) > LEVELS.index(level)
