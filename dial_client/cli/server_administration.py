"""Changes of the configuration over HTTP: edits the file like ``dial-chat servers``, and reloads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread

from dial_client.cli.options import Options
from dial_client.cli.server_commands.changed_config import change_config, find_file, find_holder
from dial_client.cli.server_commands.server_group import ConfigChoice
from dial_client.settings import server_edits
from dial_client.settings.config_writer import ConfigText, read_text


class ConfigAdministration:
    """A `serve.server_routes.ServerAdministration` over the configuration file in use.

    Args:
        options: The options of the command line, which may name the file.
        reload: Requests a reload of the configuration.
    """

    def __init__(self, options: Options, reload: Callable[[], None]) -> None:
        self._choice = ConfigChoice(file=options.config)
        self._reload = reload
        self._lock = anyio.Lock()

    async def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """Add a server.

        Raises:
            ConfigError: The file cannot be changed; the other methods raise it too.
        """

        def edit(text: str) -> str:
            return server_edits.add_server(text, name, entry)

        await self._change(lambda: read_text(find_file(self._choice)), edit, f"added {name!a}")

    async def remove(self, name: str) -> None:
        """Remove a server."""

        def edit(text: str) -> str:
            return server_edits.remove_server(text, name)

        await self._change(lambda: find_holder(name, self._choice), edit, f"removed {name!a}")

    async def set_enabled(self, name: str, *, is_enabled: bool) -> None:
        """Enable or disable a server."""

        def edit(text: str) -> str:
            return server_edits.set_enabled(text, name, is_enabled=is_enabled)

        summary = f"{'enabled' if is_enabled else 'disabled'} {name!a}"
        await self._change(lambda: find_holder(name, self._choice), edit, summary)

    async def _change(self, find: Callable[[], ConfigText], edit: Callable[[str], str], summary: str) -> None:
        async with self._lock:
            await anyio.to_thread.run_sync(lambda: change_config(find(), edit, summary))
        self._reload()
