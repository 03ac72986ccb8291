"""What the servers of one client meet on the host's side: the same for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.server_status import OnChange


@dataclass(frozen=True, slots=True)
class HostSide:
    """Given to every connection of a client."""

    on_change: OnChange | None = None
    """Is told of each change of a server's state or tools."""
