"""Logins to servers at the client: a tool that is listed while a server needs a login, and that opens its URL there.

A server that needs a login has no tools that a client could call, so the login is a tool of the gateway. The client is
asked to open the URL (elicitation); the browser comes back to this machine, and the login is stored where `dial-chat`
stores its logins.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from dial_client.client.client_options import Logins
from dial_client.client.client_setup import ClientParts, open_logins
from dial_client.client.dial_client import DialClient
from dial_client.gateway.client_requests import ClientRequest
from dial_client.hooks.approval_request import quote_name
from dial_client.hooks.audit.entries import record_request
from dial_client.hooks.call_context import URLS
from dial_client.hooks.server_callbacks import Callbacks, LoginRequest, build_login_hint
from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import count_noun
from dial_client.servers.connection import Connection
from dial_client.servers.oauth.redirect_listener import RedirectListener, build_listener
from dial_client.servers.owner_connection import OwnerConnection
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.status import ServerState
from dial_client.settings.config_types import ServerSettings

# The name of the tool. Tools of servers have ``__`` in their names.
LOG_IN = "log_in"
# Seconds for a whole login, with what the user does in the browser.
LOGIN_SECONDS = 600.0


class LoginTool:
    """Logs in to servers at the client.

    Args:
        parts: The servers, and the audit log.
        logins: Where logins are stored, as `DialClient` takes it.
    """

    def __init__(self, parts: ClientParts, logins: Logins) -> None:
        self._servers, self._audit = parts.servers, parts.executor.audit
        self._logins = logins

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers that need a login."""
        return tuple(sorted(connection.name for connection in self._servers.values() if needs_login(connection)))

    def list_tools(self) -> list[Tool]:
        """Return the tool that logs in, as long as a server needs a login."""
        if not (names := list(self.servers)):
            return []
        schema = {
            "type": "object",
            "properties": {"server": {"type": "string", "enum": names, "description": "The server to log in to"}},
            "required": ["server"],
        }
        listed = ", ".join(map(quote_name, names))
        return [
            Tool(
                name=LOG_IN,
                title="Log in to a server",
                description=f"Let the user log in to a server in a browser. Its tools appear afterwards. "
                f"Without a login these have no tools: {listed}",
                input_schema=schema,
                annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True),
            )
        ]

    async def log_in(self, request: ClientRequest, arguments: Mapping[str, Any]) -> CallToolResult:
        """Let the user of a client log in to a server, and restart the server."""
        connection = self._servers.get(str(arguments.get("server")))
        settings = None if connection is None else connection.settings
        if connection is None or settings is None or not needs_login(connection):
            return _build_result("There is no server of this name that needs a login now.", is_error=True)
        name = connection.name
        if URLS not in request.features:
            hint = build_login_hint(name)
            return _build_result(f"This client cannot open a URL for its user. To log in, {hint}.", is_error=True)
        try:
            async with await build_listener(settings, open_logins(self._logins)) as listener:
                problem = await self._run_login(settings, ClientLogin(listener, request))
        except LoginFailed as error:
            problem = str(error)
        action = "decline" if problem else "accept"
        record_request(self._audit.recorder, "elicitation", name, (LOG_IN,), [request.origin], action, "the client")
        if problem:
            return _build_result(f"Not logged in to {quote_name(name)}: {problem}", is_error=True)
        status = await self._servers.restart(name)
        if status.state is not ServerState.READY:
            return _build_result(f"Logged in, but {quote_name(name)} is not ready: {status.error}", is_error=True)
        return _build_result(f"Logged in: {quote_name(name)} is ready, with {count_noun(len(status.tools), 'tool')}.")

    async def _run_login(self, settings: ServerSettings, login: ClientLogin) -> str:
        """Log in, in a session of its own, which may take as long as a person needs; return what went wrong."""
        patient = replace(settings, startup_timeout=LOGIN_SECONDS, enabled=True, lazy=False)
        async with DialClient(
            servers={settings.name: patient}, callbacks=Callbacks(login=login), logins=self._logins
        ) as dial:
            status = dial.servers[settings.name]
        return "" if status.state is ServerState.READY else status.error or status.state.value


class ClientLogin:
    """The login callback that opens the URL at a client; the browser is redirected to this machine."""

    def __init__(self, listener: RedirectListener, request: ClientRequest) -> None:
        self.redirect_uri = listener.redirect_uri
        self._listener, self._request = listener, request

    async def __call__(self, request: LoginRequest) -> str:
        """Ask the client to open the URL, and wait for the browser."""
        scopes = f", which asks for: {to_one_line(', '.join(request.scopes), 500)}" if request.scopes else ""
        reason = f" Again: {to_one_line(request.reason, 500)}." if request.reason else ""
        message = f"{quote_name(request.server)} wants you to log in at {request.origin}{scopes}.{reason}"
        is_older = not is_modern(self._request.context.session.protocol_version)
        id_ = secrets.token_hex(16) if is_older else None
        params = ElicitRequestURLParams(message=message, url=request.url, elicitation_id=id_)
        answer = await self._request.ask(ElicitRequest(params=params))
        if not isinstance(answer, ElicitResult) or answer.action != "accept":
            raise LoginFailed("the user did not agree to open the URL")
        state = parse_qs(urlsplit(request.url).query)["state"][0]
        address = ""
        with anyio.move_on_after(LOGIN_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(self._request.report_while_waiting)
                address = await self._listener.answer(state)
                group.cancel_scope.cancel()
        if not address:
            raise LoginFailed("no login took place")
        if id_ is not None:
            await self._request.context.session.send_elicit_complete(id_)
        return address


def needs_login(connection: Connection) -> bool:
    """Return whether a server is not available because nobody has logged in to it."""
    error = connection.summary.error or ""
    # The login of one person must not become that of everybody.
    is_shared = not isinstance(connection, OwnerConnection)
    return is_shared and connection.state is ServerState.FAILED and build_login_hint(connection.name) in error


def _build_result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=is_error)
