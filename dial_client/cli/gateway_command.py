"""The command ``gateway``: all servers of the configuration as one MCP server on standard input and output."""

from __future__ import annotations

from dial_client.cli.load_settings import read_settings
from dial_client.cli.open_client import open_client
from dial_client.cli.options import ExitCode, Options


async def serve_gateway(options: Options) -> int:
    """Serve until the client closes standard input, and return the exit code.

    Standard output carries nothing but the protocol. Nobody is at this terminal: nothing is asked here.

    Raises:
        ConfigError: An option or the configuration is wrong; or the file of this folder is not trusted.
    """
    from dial_client.gateway.client_session import ClientSessions
    from dial_client.gateway.denials import deny
    from dial_client.gateway.gateway import Gateway

    settings = await read_settings(options, may_ask=False)
    sessions = ClientSessions()
    async with open_client(options, settings, None, deny) as dial:
        await Gateway(dial, sessions).serve_stdio()
    return ExitCode.ANSWERED
