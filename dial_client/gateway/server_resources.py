"""The resources of all servers for the clients of the gateway: lists, templates, and contents as the servers send them.

A client names a resource by its address (`addresses`). It may also use the server's own URI, which it has read in a
text that no program can rewrite, if only one server has such a resource.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    INVALID_PARAMS,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from dial_client.gateway.addresses import parse_address, rewrite_contents
from dial_client.gateway.client_requests import ClientRequest
from dial_client.gateway.client_session import ClientSessions
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.questions import GivenApproval, Questions
from dial_client.gateway.server_lists import ListKind, ServerLists
from dial_client.gateway.skill_checks import SkillChecks
from dial_client.gateway.upstream_requests import answer_request, send_upstream
from dial_client.servers.connection import Connection
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.server_manager import ServerManager

# The code for a resource that does not exist, before 2026-07-28.
_RESOURCE_NOT_FOUND = -32002


class ResourceAddresses:
    """Finds the server and the server's own URI that a client means.

    Args:
        servers: The servers.
        lists: Their lists.
    """

    def __init__(self, servers: ServerManager, lists: ServerLists) -> None:
        self._servers, self._lists = servers, lists

    async def resolve(self, address: str, protocol_version: str) -> tuple[Connection, str]:
        """Return the server and its URI for what a client names.

        Raises:
            MCPError: It is neither an address of a server, nor a URI that exactly one server has.
        """
        parsed = parse_address(address)
        if parsed is not None and parsed[0] in self._servers:
            return self._servers[parsed[0]], parsed[1]
        owners = {item.server for item in await self._lists.get(ListKind.RESOURCES) if item.key == address}
        if not owners:
            templates = await self._lists.get(ListKind.TEMPLATES)
            owners = {item.server for item in templates if item.key == address or _matches(item.key, address)}
        if len(owners) == 1 and (owner := owners.pop()) in self._servers:
            return self._servers[owner], address
        code = INVALID_PARAMS if is_modern(protocol_version) else _RESOURCE_NOT_FOUND
        if owners:
            reason = f"several servers have it: {', '.join(sorted(owners))}"
        else:
            missing = self._lists.describe_unread(ListKind.RESOURCES, ListKind.TEMPLATES)
            reason = f"no server has it. {missing}" if missing else "no server has it"
        raise MCPError(code, f"Resource not found: {reason}", {"uri": address})


def _matches(template: str, uri: str) -> bool:
    try:
        return UriTemplate.parse(template).match(uri) is not None
    except ValueError:
        return False


class ServerResources:
    """Answers ``resources/list``, ``resources/templates/list`` and ``resources/read``.

    Args:
        lists: The lists of the servers.
        addresses: Finds the server of a resource.
        sessions: The clients.
        questions: Asks a client what a server wants to know before it returns a resource.
        skills: Checks the resources that belong to skills.
    """

    def __init__(
        self,
        lists: ServerLists,
        addresses: ResourceAddresses,
        sessions: ClientSessions,
        questions: Questions,
        skills: SkillChecks,
    ) -> None:
        self._lists, self._addresses, self._skills = lists, addresses, skills
        self._sessions, self._questions = sessions, questions

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "resources/list": (PaginatedRequestParams, self.list_resources),
            "resources/templates/list": (PaginatedRequestParams, self.list_templates),
            "resources/read": (ReadResourceRequestParams, self.read),
        }

    async def list_resources(
        self, context: ServerRequestContext[Any, Any], _: PaginatedRequestParams
    ) -> ListResourcesResult:
        """Return the resources of all servers that are ready, on one page."""
        self._sessions.find(context)
        return ListResourcesResult(resources=[item.item for item in await self._lists.get(ListKind.RESOURCES)])

    async def list_templates(
        self, context: ServerRequestContext[Any, Any], _: PaginatedRequestParams
    ) -> ListResourceTemplatesResult:
        """Return the resource templates of all servers that are ready, on one page."""
        self._sessions.find(context)
        templates = [item.item for item in await self._lists.get(ListKind.TEMPLATES)]
        return ListResourceTemplatesResult(resource_templates=templates)

    async def read(
        self, context: ServerRequestContext[Any, Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        """Read a resource; return its contents, or what the client has to answer first.

        Raises:
            MCPError: There is no such resource, or its server refused or does not answer.
        """
        session = self._sessions.find(context)
        connection, uri = await self._addresses.resolve(params.uri, context.protocol_version)
        skill = await self._skills.find(connection, uri)
        if skill is not None:
            self._skills.require_unchanged(skill)

        async def make(request: ClientRequest, _: GivenApproval | None) -> ReadResourceResult:
            result = await send_upstream(
                connection, request, lambda client, options: client.read_resource(uri, **options)
            )
            if skill is not None:
                self._skills.record(skill, uri, result, session)
            return rewrite_contents(connection.name, result, uri, params.uri)

        return await answer_request(self._questions, session, context, params, make)
