"""The work of ``dial-chat servers export``: prints servers in the form of another MCP host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dial_client.cli.bootstrap import warn
from dial_client.cli.configuration_files import ask_for_files
from dial_client.cli.options import ExitCode, Options
from dial_client.messages.errors import ConfigError
from dial_client.runtime.similar_names import did_you_mean
from dial_client.settings import configuration
from dial_client.settings.hosts.host_export import write_host_text
from dial_client.settings.hosts.host_files import HostName


async def export_servers(options: Options, names: Sequence[str], to: str) -> int:
    """Print servers in the form of another host, without expanding variables. Return the exit code.

    Raises:
        ConfigError: There is no such host or server, or a file is not trusted, and the user cannot be asked.
    """
    if to not in {*HostName}:
        raise ConfigError(f"{to!r} is not a host", did_you_mean(to, HostName) or f"hosts: {', '.join(HostName)}")
    servers: dict[str, dict[str, Any]] = {}
    for file in await ask_for_files(options, warn):
        outline = configuration.outline(file.text, file.path)
        servers |= {name: {key: node.value for key, node in entry.items()} for name, entry in outline.servers.items()}
    for name in names:
        if name not in servers:
            hint = did_you_mean(name, servers) or f"there are {', '.join(servers) or 'none'}"
            raise ConfigError(f"there is no server {name!r}", hint)
    chosen = {name: entry for name, entry in servers.items() if not names or name in names}
    text, losses = write_host_text(HostName(to), chosen)
    print(text, end="")
    for loss in losses:
        warn(loss)
    return ExitCode.ANSWERED
