"""Announces to the clients that a list has changed, once for several changes that follow each other.

Up to 2025-11-25 these are notifications to each session; since 2026-07-28 the SDK's subscription bus delivers them to
the clients that listen. Changes of all servers arrive as one: a server that starts, dies or lists other tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import anyio
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ServerNotification,
    Tool,
    ToolListChangedNotification,
)

from dial_client.gateway.client_session import ClientSession, ClientSessions
from dial_client.gateway.definitions import Definitions, ToolDefinitions
from dial_client.gateway.login_tool import LoginTool
from dial_client.gateway.server_lists import ListKind, ServerLists
from dial_client.hooks.owners import act_for
from dial_client.runtime.logs import get_logger
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.server_manager import ServerManager

log = get_logger(__name__)

# Seconds without a further change before a change is announced, and the most seconds until then.
QUIET_SECONDS = 0.1
MOST_SECONDS = 1.0
# Seconds that one client has to accept a notification: one that does not read must not delay the others.
SEND_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class ListChanges:
    """Announces changes of lists.

    Args:
        servers: The servers, whose changes of state and tools are watched.
        definitions: The tools of the servers.
        lists: The other lists of the servers.
        sessions: The clients.
        bus: Delivers events to the clients that listen (2026-07-28).
        logins: The tool that is listed while a server needs a login.
        select: Returns the tools that clients see, of all that there are.
    """

    servers: ServerManager
    definitions: ToolDefinitions
    lists: ServerLists
    sessions: ClientSessions
    bus: InMemorySubscriptionBus
    logins: LoginTool
    select: Callable[[Definitions], Sequence[Tool]] = lambda definitions: definitions.tools

    async def run(self) -> None:
        """Announce changes until cancelled."""
        announced = self.select(self.definitions.current), self.logins.servers
        count = self.servers.announcements.value
        while True:
            count = await self._wait_for_change(count)
            current = self.definitions.current
            selected = self.select(current), self.logins.servers
            if selected != announced:
                announced = selected
                await self.announce_tools(current)
            await self._announce_to_persons()
            changed = self.lists.take_changes()
            if ListKind.RESOURCES in changed or ListKind.TEMPLATES in changed:
                await self.announce(ResourceListChangedNotification(), ResourcesListChanged(), self.sessions)
            if ListKind.PROMPTS in changed:
                await self.announce(PromptListChangedNotification(), PromptsListChanged(), self.sessions)

    async def _wait_for_change(self, before: int) -> int:
        """Wait for a change, and then until no other one follows; return the count of changes."""
        count = await self.servers.announcements.wait_until(lambda value: value != before)
        with anyio.move_on_after(MOST_SECONDS):
            while (following := await self._wait_briefly(count)) != count:
                count = following
        return self.servers.announcements.value

    async def _wait_briefly(self, before: int) -> int:
        return await self.servers.announcements.wait_until(lambda value: value != before, QUIET_SECONDS)

    async def announce_tools(self, current: Definitions) -> None:
        """Announce that the tools are others now, to the clients that have not listed these yet."""
        listed = current, self.logins.servers
        clients = [session for session in self.sessions if session.listed != listed]
        await self.announce(ToolListChangedNotification(), ToolsListChanged(), clients)

    async def _announce_to_persons(self) -> None:
        """Announce to the clients of a person that this person's own tools are others than a client has listed."""
        clients = []
        for session in self.sessions:
            with act_for(session.person):
                if self.servers.owned and session.listed is not None and not self.is_listed(session):
                    session.listed = None  # announced once until the client lists again
                    clients.append(session)
        if clients:
            await self.announce(ToolListChangedNotification(), ToolsListChanged(), clients)

    def is_listed(self, session: ClientSession) -> bool:
        """Return whether the tools that a client has listed last are those that there are now."""
        match session.listed:
            case (Definitions() as listed, servers):
                return servers == self.logins.servers and self.select(listed) == self.select(self.definitions.current)
            case _:
                return False

    async def announce(
        self, notification: ServerNotification, event: ServerEvent, clients: Iterable[ClientSession]
    ) -> None:
        """Announce a change.

        Args:
            notification: The notification for clients of the older revision.
            event: The event for clients that listen.
            clients: The sessions to notify; clients of revision 2026-07-28 are left out.
        """
        await self.bus.publish(event)
        async with anyio.create_task_group() as group:
            for session in clients:
                if not is_modern(session.protocol_version):
                    group.start_soon(_notify, session, notification)


async def _notify(session: ClientSession, notification: ServerNotification) -> None:
    with anyio.move_on_after(SEND_SECONDS):
        try:
            await session.channel.send_notification(notification)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.debug("client_gone", session=session.id)
