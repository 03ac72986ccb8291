"""The skills of all servers for the clients of the gateway, and the directories of their files.

An entry is that of its server (SEP-2640), with addresses in place of its URIs. A skill is identified by its URI, so the
skills of two servers do not collide, also if they have the same name. Their files are read as resources.
"""

from __future__ import annotations

from typing import Any

import anyio
from mcp import Client
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ListResourcesResult, Request, RequestParams

from dial_client.gateway.addresses import rewrite_resource, to_address
from dial_client.gateway.client_requests import ClientRequest, RequestInSession
from dial_client.gateway.client_session import ClientSessions
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.questions import Questions
from dial_client.gateway.server_resources import ResourceAddresses
from dial_client.gateway.skill_checks import SkillChecks
from dial_client.gateway.upstream_requests import send_upstream, to_protocol_error
from dial_client.messages.errors import ServerError
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import LIST_SECONDS
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.server_manager import ServerManager
from dial_client.tools.skills.skill_manifest import DYNAMIC, ServerSkill

# The most seconds that a list of skills waits for servers that are starting.
START_SECONDS = 5.0
_DIRECTORY = "resources/directory/read"


class SkillQuery(RequestParams):
    """The parameters of the requests about skills."""

    uri: str | None = None
    cursor: str | None = None


class DirectoryRequest(Request[SkillQuery, str]):
    """The request for the direct children of a directory."""


class SkillEntries:
    """Answers the requests about skills.

    Args:
        servers: The servers.
        checks: Says which skills are withheld.
        addresses: Finds the server of a skill.
        sessions: The clients.
        questions: Knows the requests that are being answered.
    """

    def __init__(
        self,
        servers: ServerManager,
        checks: SkillChecks,
        addresses: ResourceAddresses,
        sessions: ClientSessions,
        questions: Questions,
    ) -> None:
        self._servers, self._checks, self._addresses = servers, checks, addresses
        self._sessions, self._questions = sessions, questions

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "skills/list": (SkillQuery, self.list_skills),
            "skills/get": (SkillQuery, self.get_skill),
            _DIRECTORY: (SkillQuery, self.read_directory),
        }

    def find_extension(self) -> dict[str, Any] | None:
        """Return what the gateway says of skills: that it has the extension, unless no server has or may have skills.

        A client asks once, at its start, when little may be known of servers that are starting.
        """
        servers = tuple(self._servers.values())
        if not any(server.has_skills or _may_have_skills(server) for server in servers):
            return None
        return {"directoryRead": True} if any(server.declares_directories for server in servers) else {}

    async def list_skills(self, context: ServerRequestContext[Any, Any], _: SkillQuery) -> dict[str, Any]:
        """Return the skills of all servers that are ready, on one page, without those that are withheld."""
        self._sessions.find(context)
        with anyio.move_on_after(START_SECONDS):
            for server in tuple(self._servers.values()):
                if _may_have_skills(server):
                    await server.wait_settled(START_SECONDS)
        skills = self._checks.of_servers
        await skills.refresh(LIST_SECONDS)
        entries = [build_entry(skill) for skill in skills.find() if not skills.is_changed(skill)]
        return {"skills": entries} | _describe_age(context)

    async def get_skill(self, context: ServerRequestContext[Any, Any], params: SkillQuery) -> dict[str, Any]:
        """Return one skill, whether or not its server lists it.

        Raises:
            MCPError: There is no such skill, it is withheld, or its server does not answer.
        """
        self._sessions.find(context)
        connection, uri = await self._find(context, params)
        try:
            skill = await self._checks.of_servers.get(connection.name, uri)
        except ServerError as error:
            raise to_protocol_error(error) from error
        self._checks.require_unchanged(skill)
        return {"skill": build_entry(skill)} | _describe_age(context)

    async def read_directory(self, context: ServerRequestContext[Any, Any], params: SkillQuery) -> dict[str, Any]:
        """Return the direct children of a directory, as its server has them, with their addresses.

        Raises:
            MCPError: There is no such directory, its skill is withheld, or its server does not answer.
        """
        session = self._sessions.find(context)
        connection, uri = await self._find(context, params)
        if not connection.declares_directories:
            raise MCPError(INVALID_PARAMS, f"The server {connection.name!r} has no directories", {"uri": params.uri})
        skill = await self._checks.find(connection, f"{uri.rstrip('/')}/")
        if skill is not None:
            self._checks.require_unchanged(skill)
        request = DirectoryRequest(method=_DIRECTORY, params=SkillQuery(uri=uri, cursor=params.cursor))

        async def send(client: Client, _: object) -> ListResourcesResult:
            return await client.session.send_request(request, ListResourcesResult)

        call: ClientRequest = RequestInSession(session, context)
        with self._questions.open_request(call):
            result = await send_upstream(connection, call, send)
        found = [rewrite_resource(connection.name, resource) for resource in result.resources]
        page = ListResourcesResult(resources=found, next_cursor=result.next_cursor)
        names = {"resources", "next_cursor"}
        dumped = page.model_dump(mode="json", by_alias=True, exclude_none=True, include=names)
        return dumped | _describe_age(context)

    async def _find(self, context: ServerRequestContext[Any, Any], params: SkillQuery) -> tuple[Connection, str]:
        if not params.uri:
            raise MCPError(INVALID_PARAMS, "uri is missing")
        try:
            return await self._addresses.resolve(params.uri, context.protocol_version)
        except MCPError as error:
            raise MCPError(INVALID_PARAMS, error.error.message, error.error.data) from error


def build_entry(skill: ServerSkill) -> dict[str, Any]:
    """Return a skill as the gateway lists it: its server's entry, with addresses."""
    return {
        "uri": to_address(skill.server, skill.uri),
        "frontmatter": dict(skill.front_matter),
        "resources": DYNAMIC
        if skill.is_dynamic
        else [
            {"uri": to_address(skill.server, f"{skill.root}{name}"), "digest": f"sha256:{digest}", "size": size}
            for name, (digest, size) in skill.digests.items()
        ],
    }


def _describe_age(context: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    """Return how long a client may keep an answer, which results have since 2026-07-28: not at all."""
    return {"ttlMs": 0, "cacheScope": "private"} if is_modern(context.protocol_version) else {}


def _may_have_skills(server: Connection) -> bool:
    """Return whether a server that was not ready yet may turn out to have skills."""
    is_off = server.settings is not None and not server.settings.skills
    return not (server.is_settled or is_off)
