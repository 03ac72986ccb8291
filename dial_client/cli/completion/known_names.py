"""The names of servers, tools, models and conversations for completion, from files on this machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from typing import Any

from dial_client.cli.configuration_files import read_trusted_files
from dial_client.messages.errors import ConfigError
from dial_client.settings import configuration
from dial_client.settings.config_outline import Outline, is_enabled
from dial_client.settings.configuration import ConfigFile

MAX_CONVERSATIONS = 50
PATIENCE = 0.2
"""Seconds to wait for a program that writes to the database."""


class KnownNames:
    """Names with descriptions, which are read when they are needed; a file that cannot be read adds none.

    Args:
        config: The configuration that the command line names; None for the files that are found, if they are trusted.
    """

    def __init__(self, config: str | None = None) -> None:
        self._config = config

    def list_servers(self) -> dict[str, str]:
        """Return the names of the servers."""
        return {name: "" if is_enabled(entry) else "disabled" for name, entry in self._outline.servers.items()}

    def list_models(self) -> dict[str, str]:
        """Return the names of models."""
        from dial_client.cli.model_names import list_known_models

        return list_known_models(self._outline.models)

    def list_tools(self) -> dict[str, str]:
        """Return the names, as offered to the model, of the tools that the servers had when they last ran."""
        from dial_client.tools.catalog import assign_names

        tools = dict(self._read_cached_tools())
        return {name: tools[key] for key, name in assign_names(tools).items()}

    def list_patterns(self) -> dict[str, str]:
        """Return patterns of tools: a pattern for all tools of each server, and a pattern for each tool."""
        names = {f"{server}/*": "all tools" for server in self.list_servers()}
        return names | {f"{server}/{tool}": about for (server, tool), about in self._read_cached_tools()}

    def list_conversations(self) -> dict[str, str]:
        """Return the ids of the latest conversations, with their titles."""
        import platformdirs

        file = platformdirs.user_data_path("dial-client", appauthor=False) / "conversations.db"
        if not file.is_file():
            return {}
        query = f"SELECT id, title FROM conversations ORDER BY updated_at DESC LIMIT {MAX_CONVERSATIONS}"  # noqa: S608
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=PATIENCE)) as connection:
                return {str(id_): str(title) for id_, title in connection.execute(query)}
        except sqlite3.Error:
            return {}

    @cached_property
    def _files(self) -> list[ConfigFile]:
        """The configuration files in use, without untrusted files."""
        try:
            return read_trusted_files(self._config)
        except ConfigError:
            return []

    @cached_property
    def _outline(self) -> Outline:
        try:
            outlines = [configuration.outline(file.text) for file in self._files]
        except ConfigError:
            return Outline({}, {})
        servers = {name: entry for outline in outlines for name, entry in outline.servers.items()}
        return Outline(servers, {name: entry for outline in outlines for name, entry in outline.models.items()})

    def list_profiles(self) -> dict[str, str]:
        """Return the names of the profiles of the configuration."""
        try:
            return dict.fromkeys(configuration.combine(self._files).profiles, "")
        except ConfigError:
            return {}

    def _read_cached_tools(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield server, tool and description of each tool in the cache."""
        from dial_client.client.client_setup import CACHE, open_cache

        cache = open_cache(True, CACHE)  # noqa: FBT003 - the user's own
        try:
            settings = configuration.combine(self._files)
        except ConfigError:
            return
        if cache is None:
            return
        for name, server in settings.servers.items():
            for tool in _select_tools(cache.read(server).get("tools")):
                yield (name, tool["name"]), str(tool.get("title") or tool.get("description") or "")


def _select_tools(tools: Any) -> list[dict[str, Any]]:
    found = tools if isinstance(tools, list) else []
    return [tool for tool in found if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
