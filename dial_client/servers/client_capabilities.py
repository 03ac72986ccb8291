"""What the servers of one client meet on the host's side: the same for all of them."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass, replace

from dial_client.callbacks.server_callbacks import ClientFeatures, ServerLog
from dial_client.servers.json_cache import JsonCache
from dial_client.servers.status import OnChange
from dial_client.settings.config_types import ServerSettings


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """Given to every connection of a client."""

    on_change: OnChange | None = None
    """Is told of each change of a server's state or tools."""
    memory: JsonCache | None = None
    """What servers were like the last time; None where nothing is remembered."""
    callbacks: ClientFeatures = ClientFeatures()  # noqa: RUF009 - frozen
    """What is done for servers that ask for it."""

    def callbacks_for(self, server: ServerSettings | None, logs: MutableSequence[ServerLog]) -> ClientFeatures:
        """Give what is done for one server: it is told its own folders, if it has any, and its `logs` are kept."""
        own, on_log = server.roots if server is not None else None, self.callbacks.on_log

        def logged(message: ServerLog) -> None:
            logs.append(message)
            if on_log is not None:
                on_log(message)

        return replace(self.callbacks, roots=self.callbacks.roots if own is None else own, on_log=logged)
