"""The HTTP API for MCP servers: states, restarts, and configuration changes if the operator allows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.serve.http_messages import HttpError, build_json_response, read_json
from dial_client.serve.server_logins import ServerLogins


class ServerAdministration(Protocol):
    """Changes the servers of the configuration. A change takes effect shortly after the call.

    Each method raises ConfigError if the change is not possible.
    """

    async def add(self, name: str, entry: Mapping[str, Any]) -> None:
        """Add a server with an entry in the format of ``servers.json``."""

    async def remove(self, name: str) -> None:
        """Remove a server."""

    async def set_enabled(self, name: str, *, is_enabled: bool) -> None:
        """Enable or disable a server."""


class ServerRoutes:
    """The routes under ``/servers``.

    Args:
        dial: The client, entered.
        administration: Changes the configuration; None to refuse changes.
    """

    def __init__(self, dial: DialClient, administration: ServerAdministration | None) -> None:
        self._dial = dial
        self._administration = administration

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        path = "/servers/{name:path}"
        return [
            Route("/servers", self._list, methods=["GET"]),
            Route("/servers", self._add, methods=["POST"]),
            Route(f"{path}/restart", self._restart, methods=["POST"]),
            Route(f"{path}/enable", self._enable, methods=["POST"]),
            Route(f"{path}/disable", self._disable, methods=["POST"]),
            Route(path, self._remove, methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:  # noqa: ARG002
        servers = [
            {**status.to_dict(), "needs_login": ServerLogins.is_needed(status)}
            for status in self._dial.servers.values()
        ]
        return build_json_response({"servers": servers, "can_change": self._administration is not None})

    async def _restart(self, request: Request) -> Response:
        await self._dial.restart_server(self._find(request))
        return Response(status_code=204)

    async def _add(self, request: Request) -> Response:
        administration = self._require_administration()
        body = await read_json(request)
        name, entry = body.get("name"), body.get("entry")
        if not isinstance(name, str) or not name.strip() or not isinstance(entry, dict):
            raise HttpError(400, "name must be a non-empty string, and entry an object", "bad_entry", param="entry")
        await administration.add(name, entry)
        return Response(status_code=204)

    async def _remove(self, request: Request) -> Response:
        await self._require_administration().remove(self._find(request))
        return Response(status_code=204)

    async def _enable(self, request: Request) -> Response:
        await self._require_administration().set_enabled(self._find(request), is_enabled=True)
        return Response(status_code=204)

    async def _disable(self, request: Request) -> Response:
        await self._require_administration().set_enabled(self._find(request), is_enabled=False)
        return Response(status_code=204)

    def _require_administration(self) -> ServerAdministration:
        if self._administration is None:
            message = "the configuration cannot be changed over HTTP: dial-chat serve --allow-admin allows it"
            raise HttpError(403, message, "not_allowed", kind="permission_error")
        return self._administration

    def _find(self, request: Request) -> str:
        name: str = request.path_params["name"]
        if name not in self._dial.servers:
            raise HttpError(404, f"there is no server {name!r}", "not_found")
        return name
