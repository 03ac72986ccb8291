"""Reads ``servers.json`` and the environment into `Settings`. A configuration is checked once, here.

    load                a file
      parse             its text
        read_server     an entry of ``mcpServers`` -> `ServerSettings`
        read_model      a profile of ``models``    -> `ModelSettings`

No message and no repr shows a value: it may be a secret. Messages name the key, and the place where it stands.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from dial_client.errors import ConfigError, system_reason
from dial_client.settings.config_locations import find_config
from dial_client.settings.config_outline import Outline
from dial_client.settings.config_types import ModelSettings, Protocol, ServerSettings, Settings, Transport, Wire
from dial_client.settings.config_values import COMMENTS, TOP_KEYS
from dial_client.settings.jsonc import Node, did_you_mean
from dial_client.settings.jsonc import read as document
from dial_client.settings.model_config import MODEL_KEYS, QUIRKS, read_model
from dial_client.settings.policy_config import policy
from dial_client.settings.server_config import SERVER_ALIASES, SERVER_KEYS, read_server
from dial_client.settings.variables import ReadFile, read_file, variables

__all__ = [
    "QUIRKS",
    "ModelSettings",
    "Protocol",
    "ServerSettings",
    "Settings",
    "Transport",
    "Wire",
    "find_config",
    "load",
    "outline",
    "parse",
    "server_from_mapping",
]


def load(path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Read a file; `environ` replaces the environment of the process.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = system_reason(error, "this is not the name of a file")
        raise ConfigError(f"cannot be read: {reason}", path=str(path)) from None
    return parse(data, path=str(path), environ=environ)


def parse(
    text: str | bytes,
    *,
    path: str = "",
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    read: ReadFile = read_file,
) -> Settings:
    """Read the text of a configuration.

    Args:
        text: JSON; comments and trailing commas are accepted.
        path: The file, as messages call it.
        folder: Where relative paths begin, and what ``${workspaceFolder}`` is; else the folder of `path`.
        environ: Stands for the process's own environment.
        read: Returns the content of an ``envFile``.

    Raises:
        ConfigError: something is wrong; it says where, and what was expected.
    """
    root = document(text, path)
    names = variables(environ, Path(path).parent if folder is None else folder, read)
    top, unknown = root.known(TOP_KEYS, {})
    servers = {name: read_server(name, node, names) for name, node in _entries(top, unknown).items()}
    models = top["models"].children() if "models" in top else {}
    return Settings(
        servers,
        {name: read_model(name, node, names) for name, node in models.items()},
        names.text(top["defaultModel"]) if "defaultModel" in top else None,
        Path(path) if path else None,
        tuple(warning for server in servers.values() for warning in server.warnings),
        policy(top["policy"], names) if "policy" in top else (),
    )


def outline(text: str | bytes, path: str = "") -> Outline:
    """Return the entries as they are written: no variable is expanded, and no other file is read.

    Raises:
        ConfigError: this is not JSON, or not made of entries.
    """
    top, unknown = document(text, path).known(TOP_KEYS, {})
    servers, models = _entries(top, unknown), top["models"].children() if "models" in top else {}
    shown = {"mcpServers", "servers", "models", "defaultModel"}
    if not {"mcpServers", "servers"} & top.keys():
        shown |= servers.keys()
    return Outline(
        {name: reduce(or_, node.known(SERVER_KEYS, SERVER_ALIASES)) for name, node in servers.items()},
        {name: reduce(or_, node.known(MODEL_KEYS, {})) for name, node in models.items()},
        top.get("defaultModel"),
        {key: node for key, node in {**unknown, **top}.items() if key not in shown},
    )


def server_from_mapping(
    name: str,
    entry: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ServerSettings:
    """Read one entry that was made in Python; relative paths begin at `folder`, by default the current one.

    Raises:
        ConfigError: something is wrong; it names the key, and what was expected.
    """
    return read_server(name, Node(entry, (name,)), variables(environ, folder or ""))


def _entries(top: Mapping[str, Node], unknown: Mapping[str, Node]) -> Mapping[str, Node]:
    """Return the entries of the servers: the value of ``mcpServers`` or ``servers``, or else the top level itself."""
    if "mcpServers" in top and "servers" in top:
        raise top["servers"].error("must not be combined with mcpServers", "keep one of the two", at_name=True)
    for key in ("mcpServers", "servers"):
        if key in top:
            return top[key].children()
    entries = {name: node for name, node in unknown.items() if not name.startswith(COMMENTS)}
    for name, node in entries.items():
        if not isinstance(node.value, Mapping):
            raise node.wrong("a server's entry", did_you_mean(name, TOP_KEYS) or 'servers stand under "mcpServers"')
    return entries
