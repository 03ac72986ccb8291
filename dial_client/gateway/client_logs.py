"""Log messages of the servers for the clients of the gateway, each from the level that the client has chosen.

Servers are asked for the most that any client wants; each client gets what it has chosen. A message goes to the client
whose request the server was answering. While a server answers several clients, nobody can tell whose message it is:
then no client gets it. A message outside of requests may be late, and about a request that has ended: it goes to a
client of the older revision if there is no other client; since 2026-07-28 there are no such messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types import LOG_LEVEL_META_KEY, EmptyResult, LoggingLevel, LoggingMessageNotification, SetLevelRequestParams

from dial_client.gateway.client_session import DEFAULT_LEVEL, ClientSession, ClientSessions
from dial_client.gateway.handlers import Handlers
from dial_client.hooks.audit.entries import Origin
from dial_client.runtime.logs import get_logger
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.server_requests import LogMessage

log = get_logger(__name__)

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
# Seconds that the servers have to confirm a level, before the request of the client continues.
LEVEL_SECONDS = 2.0
# Seconds that one client has to accept a message: one that does not read must not delay the server.
SEND_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Recipient:
    """A client that messages are sent to."""

    channel: ServerSession
    level: LoggingLevel | None
    """The lowest level that it gets; None for no messages."""
    is_request: bool = False
    """True to send with the answer of the client's request, False for the stream of the client's session."""

    async def send(self, notification: LoggingMessageNotification) -> None:
        """Send a message, if its level is high enough."""
        if self.level is not None and LEVELS.index(notification.params.level) >= LEVELS.index(self.level):
            # The SDK takes any id for "the request of this channel".
            related = 0 if self.is_request else None
            await self.channel.send_notification(notification, related_request_id=related)


class ClientLogs:
    """Answers ``logging/setLevel``, and sends the messages of the servers to the clients.

    Args:
        servers: The servers.
        sessions: The clients.
    """

    def __init__(self, servers: ServerManager, sessions: ClientSessions) -> None:
        self._servers, self._sessions = servers, sessions
        # The requests that are being answered, by the ids of the session and the request. Since 2026-07-28 two windows
        # of one program share a session over HTTP, and may use the same id.
        self._requests: dict[tuple[str, str], list[_Recipient]] = {}
        # The levels of requests of 2026-07-28 so far, each of which names its own.
        self._request_levels: set[LoggingLevel] = set()
        servers.on_log_message = self.send

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {"logging/setLevel": (SetLevelRequestParams, self.set_level)}

    async def set_level(self, context: ServerRequestContext[Any, Any], params: SetLevelRequestParams) -> EmptyResult:
        """Set the level of a client; it has no effect on what other clients get."""
        self._sessions.find(context).log_level = params.level
        await self._update_servers()
        return EmptyResult()

    async def follow_request(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer a request of a client, and send it the messages of the servers meanwhile: middleware of the server."""
        context = ctx  # the SDK names the parameter
        if context.request_id is None or "/" not in context.method:  # a notification, the handshake, a ping
            return await call_next(context)
        session = self._sessions.find(context)
        level: LoggingLevel | None = session.log_level or DEFAULT_LEVEL
        if is_modern(context.protocol_version):
            named = (context.meta or {}).get(LOG_LEVEL_META_KEY)
            level = next((known for known in LEVELS if known == named), None)
            if level is not None and level not in self._request_levels:
                self._request_levels.add(level)
                await self._update_servers()
        elif (current := self._servers.log_level) in LEVELS and LEVELS.index(current) > LEVELS.index(level):
            await self._update_servers()  # the first request of a client that wants more than those before
        origin = session.build_origin(context.request_id)
        key = origin.conversation, origin.turn
        recipient = _Recipient(context.session, level, is_request=True)
        self._requests.setdefault(key, []).append(recipient)
        try:
            return await call_next(context)
        finally:
            self._requests[key].remove(recipient)
            if not self._requests[key]:
                del self._requests[key]

    async def _update_servers(self) -> None:
        """Ask the servers for the most that any client wants."""
        chosen = {session.log_level or DEFAULT_LEVEL for session in self._list_legacy()} | self._request_levels
        level = min(chosen, key=LEVELS.index, default=None)
        if level is not None and level != self._servers.log_level:
            await self._servers.set_log_level(level, LEVEL_SECONDS)

    async def send(self, message: LogMessage) -> None:
        """Send a message of a server to the client that it is for, within `SEND_SECONDS`."""
        logger = message.params.logger
        name = f"{message.server}/{logger}" if logger else message.server
        notification = LoggingMessageNotification(params=message.params.model_copy(update={"logger": name}))
        try:
            with anyio.move_on_after(SEND_SECONDS):
                for recipient in self._find_recipients(message.origins):
                    await recipient.send(notification)
        except Exception as error:  # noqa: BLE001 - a client that has gone must not disturb the server's session
            log.debug("log_not_sent", server=message.server, error=type(error).__name__)

    def _find_recipients(self, origins: tuple[Origin, ...]) -> list[_Recipient]:
        """Return who gets a message about requests of these origins, or about none."""
        owners = {origin.conversation for origin in origins}
        if len(owners) > 1:
            return []
        if owners:
            # Of several requests of one client, the first: the message may be about any of them.
            keys = [(origin.conversation, origin.turn) for origin in origins]
            found = [self._requests[key] for key in keys if key in self._requests]
            return found[0] if found and len(found[0]) == 1 else []
        sessions = list(self._sessions)
        if len(sessions) != 1 or is_modern(sessions[0].protocol_version):
            return []
        return [_Recipient(session.channel, session.log_level or DEFAULT_LEVEL) for session in sessions]

    def _list_legacy(self) -> list[ClientSession]:
        return [session for session in self._sessions if not is_modern(session.protocol_version)]
