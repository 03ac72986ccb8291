"""The clients of the gateway: who a client is, what it can do, and what its calls have read.

A client is a connection, or a session of Streamable HTTP. Revision 2026-07-28 has no sessions over HTTP: there the
person and the name of the client program tell whose call it is.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types import ClientCapabilities, LoggingLevel

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.mcp_apps import EXTENSION
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.token_bucket import TokenBucket
from dial_client.tools.taint import Taint

# The header of Streamable HTTP that names the session, before revision 2026-07-28.
SESSION_HEADER = "mcp-session-id"
# The most sessions that are remembered; the one that was idle longest is forgotten first, with its taint.
MAX_SESSIONS = 1_000
# The level of log messages for a client of the older revision that has chosen none.
DEFAULT_LEVEL: LoggingLevel = "info"
# Calls of one client in a minute, unless the user has set another number: a model in a loop must not keep the servers
# busy for all others.
CALLS_PER_MINUTE = 6_000
# The most programs of one client that run at the same time, a few of those of the sandbox; others wait for them.
MAX_PROGRAMS = 16
# Maximum characters of the name and version of a client program.
_MAX_CLIENT = 100

# Returns the person that a request is for; empty if there is only one.
FindPerson = Callable[[ServerRequestContext[Any, Any]], str]


@dataclass(eq=False, slots=True)
class ClientSession:
    """One client of the gateway, from its first request on."""

    channel: ServerSession
    """The SDK's session of the latest request: notifications without a related request reach the client through it."""
    person: str = ""
    """The person that the client works for; empty if nobody is named, as over standard input and output."""
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    """A random id: the conversation of the session's calls, for approvals, grants and the audit log."""
    taint: Taint = field(default_factory=Taint)
    """The untrusted content that the client has received: the model behind it may act on what that content says."""
    listed: object = None
    """The definitions, and the servers to log in to, that the client has listed last; None before it has listed any."""
    log_level: LoggingLevel | None = None
    """The lowest level of log messages that a client of the older revision has chosen; None if it has chosen none."""
    calls: int = 0
    """The number of calls in flight."""
    calls_left: TokenBucket = field(default_factory=lambda: _build_bucket(CALLS_PER_MINUTE))
    """The calls that the client may make: as many at once as in a minute."""
    programs: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(MAX_PROGRAMS))
    """Held while a program of the client runs: those that wait for one person must not keep out all others."""
    features: tuple[ClientCapabilities | None, str, frozenset[str]] | None = None
    """What the client can be asked for, with the capabilities and the revision that say so; None before it is read."""
    # Called when the session ends; None once it has ended.
    _at_end: set[Callable[[], None]] | None = field(default_factory=set)

    @property
    def client(self) -> str:
        """The name and version of the client program, as it calls itself, in one line; empty if it does not say."""
        params = self.channel.client_params
        return "" if params is None else _describe_client(params.client_info.name, params.client_info.version)

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """What the client declared in its latest request, or at its start; None if it declared nothing."""
        return self.channel.client_capabilities

    @property
    def shows_apps(self) -> bool:
        """True if the client shows MCP Apps."""
        capabilities = self.capabilities
        return capabilities is not None and EXTENSION in (capabilities.extensions or {})

    @property
    def protocol_version(self) -> str:
        """The revision of the protocol that the client speaks."""
        return self.channel.protocol_version

    @contextmanager
    def hold(self, end: Callable[[], None]) -> Iterator[None]:
        """Call a function when the session ends within the ``with`` block, at once if it has ended before."""
        if self._at_end is None:
            end()
        else:
            self._at_end.add(end)
        try:
            yield
        finally:
            if self._at_end is not None:
                self._at_end.discard(end)

    def end(self) -> None:
        """End what was begun for the client; the session is forgotten."""
        functions, self._at_end = self._at_end or (), None
        for function in functions:
            function()

    def build_origin(self, request_id: object) -> Origin:
        """Return where a call of this client comes from: the session is its conversation, the request its turn."""
        turn = "" if request_id is None else str(request_id)
        return Origin(self.id, turn[:_MAX_CLIENT], self.person, self.client)


@dataclass(eq=False, slots=True)
class ClientSessions:
    """The sessions of all clients of one gateway.

    Args:
        find_person: Returns the person that a request is for, of a service that knows several.
    """

    find_person: FindPerson = lambda _: ""
    calls_per_minute: int = field(default=CALLS_PER_MINUTE, init=False)
    """The most calls of one client in a minute."""
    on_end: Callable[[ClientSession], None] = field(default=lambda _: None, init=False)
    """Called with each session that has ended."""
    # The sessions by what identifies them, the one that was idle longest first.
    _sessions: OrderedDict[object, ClientSession] = field(default_factory=OrderedDict, init=False)

    def find(self, context: ServerRequestContext[Any, Any]) -> ClientSession:
        """Return the session of a request; a new one for the first request of a client."""
        person = self.find_person(context)
        key = _identify(context, person)
        session = self._sessions.get(key)
        if session is None:
            calls_left = _build_bucket(self.calls_per_minute)
            session = self._sessions[key] = ClientSession(context.session, person, calls_left=calls_left)
            if len(self._sessions) > MAX_SESSIONS:
                self._end(self._sessions.popitem(last=False)[1])
        else:
            session.channel = context.session
            self._sessions.move_to_end(key)
        return session

    def get(self, id_: str) -> ClientSession | None:
        """Return the session with an id, which is the conversation of its calls; None if it has ended."""
        return next((session for session in self._sessions.values() if session.id == id_), None)

    def end(self, connection: object) -> None:
        """Forget the session of a connection that has ended."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            self._end(session)

    def _end(self, session: ClientSession) -> None:
        session.end()
        self.on_end(session)

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(tuple(self._sessions.values()))


@lru_cache
def _describe_client(name: str, version: str) -> str:
    return to_one_line(f"{name} {version}".strip(), _MAX_CLIENT)


def _build_bucket(per_minute: int) -> TokenBucket:
    return TokenBucket(per_minute, per_minute / 60)


def _identify(context: ServerRequestContext[Any, Any], person: str) -> object:
    """Return what tells the sessions of clients apart."""
    if context.request is None:  # no HTTP: the object that the server's lifespan has made for this connection
        return context.lifespan_context
    if id_ := context.request.headers.get(SESSION_HEADER):
        # The person is part of it: knowing the id of another one's session must not suffice to join it.
        return person, id_
    params = context.session.client_params
    info = () if params is None else (params.client_info.name, params.client_info.version)
    return person, "", info
