"""The command ``gateway``: all servers of the configuration as one MCP server on standard input and output."""

from __future__ import annotations

from dataclasses import replace

from dial_client.cli.error_stream import warn_once
from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options
from dial_client.settings.config_types import Settings
from dial_client.settings.gateway_entry import is_gateway


async def serve_gateway(options: Options) -> int:
    """Serve until the client closes standard input, and return the exit code.

    Standard output carries nothing but the protocol. Nobody is at this terminal: nothing is asked here.

    Raises:
        ConfigError: An option or the configuration is wrong; or the file of this folder is not trusted.
    """
    from dial_client.gateway.client_session import ClientSessions
    from dial_client.gateway.denials import deny
    from dial_client.gateway.gateway import Gateway

    settings = _without_gateways(await read_settings(options, may_ask=False))
    sessions = ClientSessions()
    async with open_client(options, settings, None, deny) as dial:
        await Gateway(dial, sessions).serve_stdio()
    return ExitCode.ANSWERED


def _without_gateways(settings: Settings) -> Settings:
    """Return the settings without servers that are this gateway: each would start the next, without end."""
    kept = {
        name: server
        for name, server in settings.servers.items()
        if not is_gateway({"command": server.command, "args": server.args})
    }
    for name in settings.servers.keys() - kept.keys():
        warn_once(f"the server {name!r} is left out: it is this gateway, which would start itself without end")
    return replace(settings, servers=kept)
