"""The prompts of all servers for the clients of the gateway, and completion for prompts and resource templates.

A prompt has the name ``server__prompt``, as tools have: people keep such names in their notes and shortcuts, and a name
that is unique today would change with the next server.
"""

from __future__ import annotations

from typing import Any

from mcp import Client
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    PaginatedRequestParams,
    PromptReference,
    ResourceTemplateReference,
)

from dial_client.gateway.addresses import restore_arguments, rewrite_prompt
from dial_client.gateway.client_requests import ClientRequest, RequestInSession
from dial_client.gateway.client_session import ClientSessions
from dial_client.gateway.definitions import MAX_NAME
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.questions import GivenApproval, Questions
from dial_client.gateway.server_lists import ListKind, ServerItem, ServerLists
from dial_client.gateway.server_resources import ResourceAddresses
from dial_client.gateway.upstream_requests import answer_request, send_upstream
from dial_client.servers.connection import Connection
from dial_client.servers.resources import COMPLETE_SECONDS
from dial_client.servers.server_manager import ServerManager
from dial_client.tools.catalog import assign_names


class ServerPrompts:
    """Answers ``prompts/list``, ``prompts/get`` and ``completion/complete``.

    Args:
        servers: The servers.
        lists: Their lists.
        addresses: Finds the server of a resource template.
        sessions: The clients.
        questions: Asks a client what a server wants to know before it returns a prompt.
    """

    def __init__(
        self,
        servers: ServerManager,
        lists: ServerLists,
        addresses: ResourceAddresses,
        sessions: ClientSessions,
        questions: Questions,
    ) -> None:
        self._servers, self._lists = servers, lists
        self._addresses, self._sessions, self._questions = addresses, sessions, questions
        # The prompts that the names were made of, and the prompts by these names.
        self._items: tuple[ServerItem, ...] = ()
        self._routes: dict[str, ServerItem] = {}

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "prompts/list": (PaginatedRequestParams, self.list_prompts),
            "prompts/get": (GetPromptRequestParams, self.get_prompt),
            "completion/complete": (CompleteRequestParams, self.complete),
        }

    async def list_prompts(
        self, context: ServerRequestContext[Any, Any], _: PaginatedRequestParams
    ) -> ListPromptsResult:
        """Return the prompts of all servers that are ready, on one page."""
        self._sessions.find(context)
        routes = await self._read_routes()
        return ListPromptsResult(
            prompts=[route.item.model_copy(update={"name": name}) for name, route in routes.items()]
        )

    async def get_prompt(
        self, context: ServerRequestContext[Any, Any], params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        """Return the messages of a prompt, or what the client has to answer first.

        Raises:
            MCPError: There is no such prompt, or its server refused or does not answer.
        """
        session = self._sessions.find(context)
        connection, name = await self._find_prompt(params.name)
        given = params.arguments
        arguments = None if given is None else restore_arguments(connection.name, given)

        async def make(request: ClientRequest, _: GivenApproval | None) -> GetPromptResult:
            result = await send_upstream(
                connection, request, lambda client, options: client.get_prompt(name, arguments, **options)
            )
            return rewrite_prompt(connection.name, result)

        return await answer_request(self._questions, session, context, params, make)

    async def complete(self, context: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> CompleteResult:
        """Return completions of an argument, with their total number if the server states it.

        Raises:
            MCPError: There is no such prompt or template, or its server refused or does not answer.
        """
        session = self._sessions.find(context)
        reference: PromptReference | ResourceTemplateReference
        if isinstance(params.ref, PromptReference):
            connection, name = await self._find_prompt(params.ref.name)
            reference = params.ref.model_copy(update={"name": name})
        else:
            connection, uri = await self._addresses.resolve(params.ref.uri, context.protocol_version)
            reference = params.ref.model_copy(update={"uri": uri})
        argument = params.argument.model_dump()
        values = params.context.arguments if params.context is not None else None

        async def send(client: Client, _: object) -> CompleteResult:
            return await client.complete(reference, argument, values)

        try:
            request = RequestInSession(session, context)
            with self._questions.open_request(request):
                return await send_upstream(connection, request, send, COMPLETE_SECONDS)
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            return CompleteResult(completion=Completion(values=[]))  # the server offers no completions

    async def _find_prompt(self, name: str) -> tuple[Connection, str]:
        route = self._routes.get(name) or (await self._read_routes()).get(name)
        if route is None or route.server not in self._servers:
            missing = self._lists.describe_unread(ListKind.PROMPTS)
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}" + (f". {missing}" if missing else ""))
        return self._servers[route.server], route.key

    async def _read_routes(self) -> dict[str, ServerItem]:
        """Return the prompts of all servers by their names in the gateway."""
        items = await self._lists.get(ListKind.PROMPTS)
        if items != self._items:
            names = assign_names(((item.server, item.key) for item in items), MAX_NAME, with_server=True)
            self._items, self._routes = items, {names[item.server, item.key]: item for item in items}
        return self._routes
