"""Edits of the servers in the text of a configuration: add, replace, remove, enable, disable.

Each function takes a text and returns the edited text. As in `configuration`, the entries are under ``mcpServers``,
under ``servers``, or at the top level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean
from dial_client.settings import configuration
from dial_client.settings.config_values import TOP_KEYS
from dial_client.settings.jsonc import read
from dial_client.settings.jsonc_editor import remove_value, set_value


def list_server_names(text: str) -> list[str]:
    """Return the names of all servers in a text, in the order of the text.

    Raises:
        ConfigError: The text is not JSON, or has values other than entries.
    """
    return list(configuration.outline(text).servers)


def add_server(text: str, name: str, entry: Mapping[str, Any], *, replace: bool = False) -> str:
    """Return the text with a server added.

    Args:
        text: The configuration.
        name: The name of the server.
        entry: The entry of the server, with the keys of ``servers.json``.
        replace: True to replace an entry of the same name.

    Raises:
        ConfigError: The text is invalid, or there is a server of this name and `replace` is False.
    """
    if name in list_server_names(text) and not replace:
        raise ConfigError(f"there is a server {name!r} already", "--replace replaces its entry")
    return set_value(text, [*find_servers_path(text), name], dict(entry))


def remove_server(text: str, name: str) -> str:
    """Return the text without a server.

    Raises:
        ConfigError: There is no such server.
    """
    check_server(text, name)
    return remove_value(text, [*find_servers_path(text), name])


def set_enabled(text: str, name: str, *, is_enabled: bool) -> str:
    """Return the text with a server enabled or disabled; the same text if it is already.

    Raises:
        ConfigError: There is no such server.
    """
    check_server(text, name)
    path = [*find_servers_path(text), name]
    found = configuration.outline(text).servers[name]
    keys = {key: [*path, str(found[key].keys[-1])] for key in ("enabled", "disabled") if key in found}
    if "disabled" in keys and (is_enabled or "enabled" in keys):
        text = remove_value(text, keys["disabled"])
    if is_enabled and "enabled" not in keys:
        return text
    key, value = ("enabled", is_enabled) if "enabled" in keys else ("disabled", True)
    if key in keys and found[key].value is value:
        return text
    return set_value(text, keys.get(key, [*path, key]), value)


def check_server(text: str, name: str) -> None:
    """Raise `ConfigError`, with the nearest name as the hint, if there is no server of this name."""
    names = list_server_names(text)
    if name not in names:
        hint = did_you_mean(name, names) or (f"there are {', '.join(names)}" if names else "there is no server at all")
        raise ConfigError(f"there is no server {name!r}", hint)


def find_servers_path(text: str) -> list[str]:
    """Return the key path of the servers; empty if they are at the top level."""
    top, unknown = read(text).split_members(TOP_KEYS, {})
    for key in ("mcpServers", "servers"):
        if key in top:
            return [str(top[key].keys[-1])]
    return [] if configuration.outline(text).servers and unknown else ["mcpServers"]
