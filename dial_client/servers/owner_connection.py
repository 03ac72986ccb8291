"""A server with ``perUser`` as one person sees it: their tools, their state, and calls in a session of their own.

The session is one of `SeparateSessions`: the first use starts it, and it is closed when it is idle. What is known of
the server stays meanwhile: its tools are offered without a session. Nothing here is ever shared between persons.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.hooks import call_context
from dial_client.hooks.call_context import Callers
from dial_client.hooks.owners import CredentialProvider
from dial_client.hooks.server_callbacks import Login, LoginRequest
from dial_client.messages.errors import ConfigError, DialError, ServerError, StoreUnavailable
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.oauth.login_stores import select_owner
from dial_client.servers.separate_sessions import Party
from dial_client.servers.server_requests import ClientCapabilities
from dial_client.servers.session import Answer, OnCallProgress, ServerSession
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.user_variables import fill_in, find_user_variables

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

log = get_logger(__name__)

# Seconds after a failed start until a turn starts the server again: a broken server must not delay each turn.
RETRY_SECONDS = 60.0
# Seconds that a program has to find a credential, such as in its database.
FIND_SECONDS = 10.0


class NeedsCredentials(ServerError):
    """A person has not filled in what the entry of a server asks for."""


class _OwnerLogin:
    """Tells the program whom a login is for."""

    def __init__(self, login: Login, owner: str) -> None:
        self.redirect_uri, self._login, self._owner = login.redirect_uri, login, owner

    async def __call__(self, request: LoginRequest) -> str:
        return await self._login(replace(request, owner=self._owner))


class OwnerConnection(Connection):
    """One server for one person; it has no session of its own, but uses one of the separate sessions of `base`.

    Args:
        owner: The person.
        settings: The entry, with its references to credentials.
        base: The connection of the entry, which holds the sessions of all persons.
        capabilities: The features and callbacks the client offers to its servers.
        credentials: Knows what the person has filled in; None if no person can fill in anything.
    """

    def __init__(
        self,
        owner: str,
        settings: ServerSettings,
        base: Connection,
        capabilities: ClientCapabilities,
        credentials: CredentialProvider | None,
    ) -> None:
        self.logins = select_owner(capabilities.logins, owner)
        """The person's logins to servers."""
        # What a server of one person offers must not be in a cache from which another one is served.
        super().__init__(base.name, settings, replace(capabilities, cache=None, on_tools=None, logins=self.logins))
        self.owner, self._credentials, self._entry = owner, credentials, settings
        self.separate = base.separate
        # The settings of the last session, with the values of the person.
        self._filled: ServerSettings | None = None
        # When the server failed last; None if another attempt may succeed at once.
        self._failed_at: float | None = None
        # Grows when sessions are closed: what was read before must not open another one.
        self._endings = 0
        if self.state is not ServerState.DISABLED:
            self.publish(ServerState.SLEEPING, None)

    @property
    def has_session(self) -> bool:
        """True if a session of the person is open."""
        return self.separate.find(Party(self.owner)) is not None

    async def check(self) -> bool:
        """Find the credentials, and set the state by them; return whether the server can be used.

        A session with credentials that were changed or taken back meanwhile is closed.
        """
        if self.state is ServerState.DISABLED:
            return False
        try:
            await self._fill_in()
        except ServerError:
            return False
        return True

    async def prepare(self) -> None:
        """Start the server if its tools are not known yet, as for a turn; problems are in the state."""
        is_unknown = not self.tools and self.state is not ServerState.READY
        is_due = self._failed_at is None or anyio.current_time() >= self._failed_at + RETRY_SECONDS
        if await self.check() and is_unknown and (is_due or self.state is not ServerState.FAILED):
            try:
                async with self._use():
                    pass
            except ServerError as error:
                log.debug("not_started", server=self.name, error=error.problem)

    def end_sessions(self) -> None:
        """Close the person's sessions, and forget the tools; calls in flight fail."""
        self._endings += 1
        self.separate.end(owner=self.owner)
        self._filled = self._failed_at = None
        self.set_tools(())
        if self.state is not ServerState.DISABLED:
            self.publish(ServerState.SLEEPING, None)

    async def fill_in(self) -> ServerSettings:
        """Return the settings with the credentials of the person, for a login.

        Raises:
            NeedsCredentials: A credential is missing, or does not fit its place.
        """
        values: dict[str, str] = {}
        missing = []
        for name in find_user_variables(self._entry):
            value = await self._find(name)
            if value is None:
                missing.append(name)
            else:
                values[name] = value
        if missing:
            hint = getattr(self._credentials, "hint", "")
            where = f"; {hint}" if isinstance(hint, str) and hint else ""
            raise NeedsCredentials(self.name, f"it needs credentials of this person: {', '.join(missing)}{where}")
        try:
            return fill_in(self._entry, values)
        except ConfigError as error:
            raise NeedsCredentials(self.name, f"a credential of this person does not fit: {error}") from None

    async def _find(self, name: str) -> str | None:
        if self._credentials is None:
            return None
        problem = f"its credentials cannot be read within {FIND_SECONDS:g} seconds"
        with anyio.move_on_after(FIND_SECONDS):
            try:
                return await self._credentials.find(self.owner, self.name, name)
            except StoreUnavailable as error:  # the log has why, once
                problem = f"its credentials cannot be read ({error})"
            except Exception as error:  # noqa: BLE001 - the embedding program may raise anything, also with a value
                log.failure("credentials_failed", error, server=self.name)
                # Only the texts of our own errors are known to name no value.
                words = str(error) if isinstance(error, DialError) else type(error).__name__
                problem = f"its credentials cannot be read ({words})"
        raise ServerError(self.name, problem)

    async def _fill_in(self) -> ServerSettings:
        """Return the settings for a session that is opened at once; raise what `fill_in` raises, and close sessions."""
        try:
            endings = -1
            while endings != self._endings:
                endings, filled = self._endings, await self.fill_in()
        except NeedsCredentials as error:
            self.end_sessions()
            self.publish(ServerState.NEEDS_CREDENTIALS, error.problem)
            raise
        except ServerError as error:
            if not self.has_session:  # an open one is not used now, and stays for when the store has returned
                self.publish(ServerState.FAILED, error.problem)
            raise
        could_not_start = self._failed_at is None and self.state in (ServerState.NEEDS_CREDENTIALS, ServerState.FAILED)
        if could_not_start or self._filled not in (None, filled):
            self.end_sessions()
        self._filled = filled
        return filled

    @asynccontextmanager
    async def _use(self) -> AsyncGenerator[Connection]:
        """Keep the session of the person open within the ``with`` block.

        Raises:
            ServerError: A credential is missing, the server did not start, or there are too many sessions.
        """
        filled = await self._fill_in()
        party, caller = Party(self.owner), None
        context = call_context.find_current()
        if filled.per_client and context is not None and context.caller is not None:
            party, caller = Party(self.owner, context.origin.conversation), context.caller
        async with self.separate.use(party, caller, partial(self._build, filled, party)) as own:
            yield own

    def _build(self, filled: ServerSettings, party: Party, callers: Callers) -> Connection:
        """Return a connection for one session, whose state and tools become those of the person."""
        callbacks = self._capabilities.callbacks
        if callbacks.login is not None:
            callbacks = replace(callbacks, login=_OwnerLogin(callbacks.login, self.owner))
        if party.client:
            callbacks = replace(callbacks, callers=callers, elicit=None)
        offered = replace(self._capabilities, callbacks=callbacks, on_change=None, on_tools=None, on_list_change=None)
        if not party.client:
            offered = replace(offered, on_change=lambda _, status: self._mirror(own, status))
        own = Connection(self.name, replace(filled, per_client=False, per_user=False, lazy=False), offered)
        if not party.client:
            own.notifications = self.notifications
        return own

    def _mirror(self, own: Connection, status: ServerStatus) -> None:
        """Take over the state and the tools of the person's session; a session that was closed leaves them."""
        found = self.separate.find(Party(self.owner))
        if found is None and self.state in (ServerState.READY, ServerState.RESTARTING):
            self.publish(ServerState.SLEEPING, None)  # it was idle
        if found is not own:
            return
        self._failed_at = anyio.current_time() if status.state is ServerState.FAILED else None
        if status.state is not ServerState.STOPPED:
            self.read_stderr = own.read_stderr
            if status.state is not ServerState.STARTING:
                self.set_tools(own.tools)
                self.declares_skills = own.declares_skills
                self.declares_directories = own.declares_directories
            self.was_settled = True
            self.set(own.summary)
            self.notify()

    @property
    def is_settled(self) -> bool:
        """True: nothing starts before the first use."""
        return True

    async def wait_settled(self, seconds: float = math.inf) -> bool:
        """Start the server as `prepare`; return False if that takes longer than `seconds`."""
        with anyio.move_on_after(seconds):
            await self.prepare()
            return True
        return False

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress | None = None
    ) -> CallToolResult:
        """Call a tool in the person's session, as `Connection.call`."""
        async with self._use() as own:
            return await own.call(tool, arguments, on_progress)

    async def ask(self, request: Callable[[Client], Awaitable[Answer]], seconds: float) -> Answer:
        """Send a request in the person's session, as `Connection.ask`."""
        async with self._use() as own:
            return await own.ask(request, seconds)

    async def wake(self) -> None:
        """Start the server, as `prepare`."""
        await self.prepare()

    @property
    def has_current_tools(self) -> bool:
        """Whether `wait_for_tools` has nothing to wait for."""
        own = self.separate.find(Party(self.owner))
        return own is None or own.has_current_tools

    async def wait_for_tools(self) -> None:
        """Wait until `tools` includes the changes that the open session has announced."""
        if (own := self.separate.find(Party(self.owner))) is not None:
            await own.wait_for_tools()

    async def open_session(self) -> ServerSession:
        """Return the person's session, for a subscription; it may be closed when no calls are made.

        Raises:
            ServerError: As `call`.
        """
        async with self._use() as own:
            return await own.open_session()
