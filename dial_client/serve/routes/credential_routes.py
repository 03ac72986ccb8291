"""``/credentials``: what a person has given for servers with ``perUser``. A value that was given is never sent back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import ConfigError, ServerError
from dial_client.runtime.logs import get_logger
from dial_client.serve.http_messages import HttpError, build_json_response, read_json, read_string
from dial_client.serve.people.stored_credentials import StoredCredentials
from dial_client.serve.routes.server_routes import ServerLogins, begin_login
from dial_client.serve.security import find_person
from dial_client.servers.oauth.token_revocation import revoke_tokens
from dial_client.servers.oauth.token_storage import TokenStorage
from dial_client.servers.owner_connection import OwnerConnection
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.user_variables import check_value, find_user_variables
from dial_client.stores.owner_credentials import KEY_VARIABLE

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CredentialRoutes:
    """The routes."""

    dial: DialClient
    """The client, entered."""
    stored: StoredCredentials
    logins: ServerLogins | None
    """The OAuth logins in progress; None if logins over HTTP are disabled."""

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        of_server, of_value = "/credentials/{server}", "/credentials/{server}/{name}"
        login = [Route(f"{of_server}/login", self._log_in, methods=["POST"])] if self.logins is not None else []
        return [
            *login,
            Route("/credentials", self._list, methods=["GET"]),
            Route(of_server, self._forget, methods=["DELETE"]),
            Route(of_value, self._put, methods=["PUT"]),
            Route(of_value, self._forget, methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        given = await self.stored.list(find_person(request).name)
        times = {(known.server, known.name): known.changed_at.isoformat() for known in given if known.name}
        servers = []
        for connection in self.dial.parts.servers.owned:
            names = self._list_names(connection)
            values = [{"name": name, "set_at": times.pop((connection.name, name), None)} for name in names]
            servers.append({"server": connection.name, "values": values})
        # What was given for an entry that has changed since.
        unused = [{"server": server, "name": name, "set_at": set_at} for (server, name), set_at in times.items()]
        return build_json_response({"servers": servers, "unused": unused, "can_store": self.stored.can_store})

    async def _put(self, request: Request) -> Response:
        connection, name = self._find(request), request.path_params["name"]
        if name not in self._list_names(connection):
            raise HttpError(404, "the server asks for no such credential", "not_found")
        value = read_string(await read_json(request), "value").strip()
        if not self.stored.can_store:
            message = f"this service has no key to encrypt credentials: its operator sets {KEY_VARIABLE}"
            raise HttpError(503, message, "no_key", kind="server_error")
        try:
            check_value(value)
        except ConfigError as error:  # the message does not have the value
            raise HttpError(400, str(error), "bad_value", param="value") from None
        owner = find_person(request).name
        await self.stored.put(owner, connection.name, name, value)
        log.info("credential_set", server=connection.name, name=name, owner=owner)
        await self.dial.restart_server(connection.name)
        return Response(status_code=204)

    async def _forget(self, request: Request) -> Response:
        owner, server = find_person(request).name, request.path_params["server"]
        name = request.path_params.get("name")
        connection = self.dial.parts.servers.get(server)
        # Before the values are gone: the URL, and so the login, may depend on them.
        settings = await _fill_in(connection) if name is None and isinstance(connection, OwnerConnection) else None
        was_there = await self.stored.forget(owner, server, name)
        login = None
        if settings is not None and isinstance(connection, OwnerConnection):
            login = await TokenStorage(settings, connection.logins).forget()
        if not was_there and login is None:
            raise HttpError(404, "there is no such credential", "not_found")
        if isinstance(connection, OwnerConnection):
            # In flight or not: what was taken back is not used any more.
            connection.end_sessions()
            await connection.check()
        log.info("credential_revoked", server=server, name=name or "", owner=owner)
        problem = await revoke_tokens(settings, login) if settings is not None and login is not None else ""
        return build_json_response({"warning": f"{server}: {problem}"}) if problem else Response(status_code=204)

    async def _log_in(self, request: Request) -> Response:
        assert self.logins is not None
        return await begin_login(self.logins, self._find(request).name, request)

    def _find(self, request: Request) -> OwnerConnection:
        connection = self.dial.parts.servers.get(request.path_params["server"])
        if not isinstance(connection, OwnerConnection):
            raise HttpError(404, "there is no such server with credentials of each person", "not_found")
        return connection

    def _list_names(self, connection: OwnerConnection) -> tuple[str, ...]:
        entry: Any = self.dial.parts.servers.targets[connection.name]
        return find_user_variables(entry)


async def _fill_in(connection: OwnerConnection) -> ServerSettings | None:
    try:
        return await connection.fill_in()
    except ServerError:  # without the values it is not known which login is meant
        return None
