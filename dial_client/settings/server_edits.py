"""Edits of the servers in the text of a configuration: added, replaced, removed, enabled, disabled.

Each function takes a text and returns the edited text. The entries are found as `configuration` finds them: under
``mcpServers``, under ``servers``, or at the top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.errors import ConfigError
from dial_client.settings import configuration
from dial_client.settings.config_values import TOP_KEYS
from dial_client.settings.jsonc import did_you_mean, read
from dial_client.settings.jsonc_editor import remove_value, set_value


def server_names(text: str) -> list[str]:
    """Return the names of all servers in a text, in its order.

    Raises:
        ConfigError: the text is not made of entries.
    """
    return list(configuration.outline(text).servers)


def add_server(text: str, name: str, entry: Mapping[str, Any], *, replace: bool = False) -> str:
    """Return the text with a further server.

    Args:
        text: the configuration.
        name: of the server.
        entry: its settings, as ``servers.json`` has them.
        replace: put the entry in place of one of the same name.

    Raises:
        ConfigError: the entry is wrong, or there is a server of this name and `replace` is false.
    """
    if name in server_names(text) and not replace:
        raise ConfigError(f"there is a server {name!r} already", "--replace puts the new entry in its place")
    return set_value(text, [*servers_path(text), name], dict(entry))


def remove_server(text: str, name: str) -> str:
    """Return the text without a server.

    Raises:
        ConfigError: there is no such server.
    """
    check_server(text, name)
    return remove_value(text, [*servers_path(text), name])


def set_enabled(text: str, name: str, *, is_enabled: bool) -> str:
    """Return the text with a server that is used, or not used; the same text where nothing has to change.

    Raises:
        ConfigError: there is no such server.
    """
    check_server(text, name)
    path = [*servers_path(text), name]
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
    """Raise `ConfigError`, with the nearest name, where there is no server of this name."""
    names = server_names(text)
    if name not in names:
        hint = did_you_mean(name, names) or (f"there are {', '.join(names)}" if names else "there is no server at all")
        raise ConfigError(f"there is no server {name!r}", hint)


def servers_path(text: str) -> list[str]:
    """Return the keys that lead to the servers: an empty list where they stand at the top."""
    top, unknown = read(text).known(TOP_KEYS, {})
    for key in ("mcpServers", "servers"):
        if key in top:
            return [str(top[key].keys[-1])]
    return [] if configuration.outline(text).servers and unknown else ["mcpServers"]
