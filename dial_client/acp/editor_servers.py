"""The MCP servers that an editor passes to a session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from dial_client.messages.errors import ConfigError
from dial_client.settings import configuration
from dial_client.settings.config_types import ServerSettings

EditorServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def read_editor_servers(
    servers: Iterable[EditorServer], taken: Collection[str], folder: str, report: Callable[[str], None]
) -> Iterator[tuple[str, ServerSettings]]:
    """Yield the settings of each server by name; servers over ACP itself are left out.

    Nothing in them is about trust or approval: an editor chooses programs, and no tools that run unasked. A `${VAR}` is
    an error, and no secret of this process's environment.

    Args:
        servers: The servers of the request.
        taken: The names of the configuration. The rules and grants of such a name are for another program, so that
            a server of the same name gets a name of its own.
        folder: The folder of the session, in which programs start.
        report: Gets a message about each server that cannot be used.
    """
    used = {*taken}
    for server in servers:
        if isinstance(server, AcpMcpServer):
            continue
        name = server.name
        while name in used:
            name = f"editor-{name}"
        used.add(name)
        try:
            yield name, configuration.read_server_mapping(name, _build_entry(server, folder), environ={}, folder=folder)
        except ConfigError as error:
            report(f"a server of the editor is left out: {error}")


def _build_entry(server: HttpMcpServer | SseMcpServer | McpServerStdio, folder: str) -> dict[str, Any]:
    if isinstance(server, McpServerStdio):
        env = {variable.name: variable.value for variable in server.env}
        return {"command": server.command, "args": list(server.args), "env": env, "cwd": folder}
    kind = "sse" if isinstance(server, SseMcpServer) else "http"
    return {"url": server.url, "type": kind, "headers": {header.name: header.value for header in server.headers}}
