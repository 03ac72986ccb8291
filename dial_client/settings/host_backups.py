"""The files of other hosts as they were before their servers moved behind the gateway, and the way back.

The folder of the user's state has two files for each changed file: a copy, and a record of what moved. Both are
readable by their owner only, because entries of servers have keys. They are not beside the host's file, which may be in
a repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.private_files import write_private
from dial_client.settings.config_editor import ConfigText, decode_text
from dial_client.settings.config_locations import report_unreadable
from dial_client.settings.config_values import Keys
from dial_client.settings.gateway_entry import is_gateway
from dial_client.settings.host_documents import MAX_BYTES, parse_document
from dial_client.settings.host_edits import find_value, replace_servers
from dial_client.settings.mcp_hosts import HostEntry


@dataclass(frozen=True, slots=True)
class MovedServers:
    """What was taken out of a host's file."""

    path: Path
    """The host's file."""
    servers: Mapping[Keys, HostEntry] = field(repr=False)
    """The entries as the host had them, by their places."""
    gateway: tuple[Keys, ...]
    """The places where the gateway's entry is now."""
    digest: str
    """SHA-256 of the file after the change."""
    is_first: bool
    """False if servers of the file had moved before: the copy is then older than this change."""


def read_host_text(path: Path) -> ConfigText:
    """Read the file of a host in order to change it.

    Raises:
        ConfigError: The file cannot be read, is too large, or is not UTF-8.
    """
    with report_unreadable(path):
        return decode_text(path, path.read_bytes(), MAX_BYTES)


def take_servers(before: ConfigText, places: Mapping[Keys, HostEntry], gateway: Mapping[Keys, HostEntry]) -> Path:
    """Take servers out of a host's file, and put the gateway in; return the path of the copy of the old file.

    Args:
        before: The file as it was read.
        places: The entries to take out, in the form of the host, by their places.
        gateway: The gateway's entry in the form of the host, by the places where it goes.

    Raises:
        ConfigError: The file cannot be changed, or another program has changed it.
    """
    text = replace_servers(before.text, before.path, places, gateway)
    copy, record = _find_copies(before.path)
    earlier = find_moved(before.path)
    if earlier is None:
        _write(copy, before.data or b"")
    moved = MovedServers(
        before.path,
        {**(earlier.servers if earlier else {}), **places},
        tuple({*(earlier.gateway if earlier else ()), *gateway}),
        sha256(text.encode()).hexdigest(),
        is_first=earlier is None,
    )
    _write(record, json.dumps(_to_json(moved), ensure_ascii=False).encode())
    _replace(before, text)
    return copy


def find_moved(path: Path) -> MovedServers | None:
    """Return what was taken out of a host's file; None if nothing was."""
    try:
        value = json.loads(_find_copies(path)[1].read_bytes())
        servers = {tuple(keys): entry for keys, entry in value["servers"]}
        gateway = tuple(tuple(keys) for keys in value["gateway"])
        return MovedServers(path, servers, gateway, value["digest"], is_first=value["first"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def return_servers(moved: MovedServers) -> None:
    """Put servers back into a host's file, and take the gateway out; its other content stays as it is now.

    Raises:
        ConfigError: The file cannot be changed, or another program has changed it.
    """
    now = read_host_text(moved.path)
    copy, record = _find_copies(moved.path)
    if moved.is_first and sha256(now.data or b"").hexdigest() == moved.digest:
        with report_unreadable(copy):
            text = copy.read_bytes().decode()  # byte for byte, with comments
    else:
        top = parse_document(now.data or b"", moved.path)
        gateways = [keys for keys in moved.gateway if is_gateway(find_value(top, keys) or {})]
        missing = {keys: entry for keys, entry in moved.servers.items() if find_value(top, keys) is None}
        text = replace_servers(now.text, moved.path, gateways, missing)
    _replace(now, text)
    for file in (copy, record):
        with suppress(OSError):
            file.unlink()


def _find_copies(path: Path) -> tuple[Path, Path]:
    """Return the paths of the copy of a file, and of the record."""
    import platformdirs

    folder = Path(platformdirs.user_state_dir("dial-client"), "host-files")
    name = sha256(os.path.realpath(path).encode()).hexdigest()[:16]
    return folder / f"{name}-{path.name}", folder / f"{name}.json"


def _to_json(moved: MovedServers) -> dict[str, Any]:
    return {
        "path": str(moved.path),
        "servers": [[list(keys), entry] for keys, entry in moved.servers.items()],
        "gateway": [list(keys) for keys in moved.gateway],
        "digest": moved.digest,
        "first": moved.is_first,
    }


def _replace(before: ConfigText, text: str) -> None:
    """Replace a host's file atomically, unless the host has changed it since it was read."""
    target = Path(os.path.realpath(before.path))  # the target of a link, which stays a link
    try:
        if target.read_bytes() != before.data:
            raise ConfigError("another program has changed the file meanwhile", "try again", str(before.path))
        write_private(target, text.encode(), mode=target.stat().st_mode & 0o777)
    except OSError as error:
        raise ConfigError(f"cannot be written: {describe_system_error(error)}", path=str(before.path)) from None


def _write(path: Path, data: bytes) -> None:
    try:
        write_private(path, data)
    except OSError as error:
        raise ConfigError(f"cannot be written: {describe_system_error(error)}", path=str(path)) from None
