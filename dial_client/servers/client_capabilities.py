"""The features and callbacks a client offers to its servers; the same for all servers."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass, replace

from dial_client.hooks.server_callbacks import ClientFeatures, ServerLog
from dial_client.servers.json_cache import JsonCache
from dial_client.servers.status import OnChange
from dial_client.settings.config_types import ServerSettings


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """The features and callbacks a client offers to each of its servers."""

    on_change: OnChange | None = None
    """Called after each change of a server's state or tools."""
    cache: JsonCache | None = None
    """The cache of server data from earlier runs; None for no cache."""
    features: ClientFeatures = ClientFeatures()  # noqa: RUF009 - frozen
    """Elicitation, sampling, roots and logging."""

    def build_features(self, server: ServerSettings | None, logs: MutableSequence[ServerLog]) -> ClientFeatures:
        """Return the features for one server: with its own roots, if configured, and with logging to `logs`."""
        roots, on_log = server.roots if server is not None else None, self.features.on_log

        def log_message(message: ServerLog) -> None:
            logs.append(message)
            if on_log is not None:
                on_log(message)

        return replace(self.features, roots=self.features.roots if roots is None else roots, on_log=log_message)
