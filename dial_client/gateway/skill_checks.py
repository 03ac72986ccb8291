"""What it means that a client of the gateway reads a file of a server's skill (SEP-2640).

The client's model follows what the skill says. So the first reading pins the skill, a skill that has changed since is
withheld, and its text is untrusted, as in `dial-chat`. The pins are those of `dial-chat`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ReadResourceResult, TextResourceContents

from dial_client.gateway.client_session import ClientSession
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import LIST_SECONDS
from dial_client.tools.skills.server_skills import ServerSkills
from dial_client.tools.skills.skill_document import FILE_NAME
from dial_client.tools.skills.skill_folders import compute_digest
from dial_client.tools.skills.skill_lists import Skills
from dial_client.tools.skills.skill_manifest import ServerSkill, SkillProblem


class SkillChecks:
    """Checks what clients read of skills.

    Args:
        open_skills: Returns the skills of the gateway's `DialClient`, whose modules are loaded with the first use.
    """

    def __init__(self, open_skills: Callable[[], Skills]) -> None:
        self._open_skills = open_skills

    @property
    def of_servers(self) -> ServerSkills:
        """The skills of the servers."""
        from dial_client.tools.skills.skill_library import SkillLibrary

        library = self._open_skills()
        assert isinstance(library, SkillLibrary)
        return library.of_servers

    async def find(self, connection: Connection, uri: str) -> ServerSkill | None:
        """Return the skill that a resource belongs to, as far as the server lists it; None for no skill."""
        if not connection.has_skills:
            return None
        skills = self.of_servers
        await skills.refresh(LIST_SECONDS)
        own = (skill for skill in skills.find() if skill.server == connection.name)
        return next((skill for skill in own if uri.startswith(skill.root)), None)

    def require_unchanged(self, skill: ServerSkill) -> None:
        """Raise `MCPError` for a skill that is withheld: it says how the user sees and accepts the change."""
        try:
            self.of_servers.require_unchanged(skill)
        except SkillProblem as problem:
            raise MCPError(INVALID_PARAMS, problem.problem) from problem

    def record(self, skill: ServerSkill, uri: str, result: ReadResourceResult, session: ClientSession) -> None:
        """Record that a client gets a file of a skill; its ``SKILL.md`` pins the skill, if it is that of the list."""
        session.taint.add(skill.server)
        part = next((part for part in result.contents if part.uri == uri), None)
        if uri != skill.uri or part is None or skill.is_dynamic:  # of which nothing can be pinned
            return
        # A client that knows skills compares the bytes with the digests itself, and one that does not has no use for
        # an error: bytes that do not fit are handed on, and pin nothing.
        data = part.text.encode() if isinstance(part, TextResourceContents) else base64.b64decode(part.blob)
        if compute_digest(data) == skill.digests[FILE_NAME][0]:
            self.of_servers.trust(skill, data.decode("utf-8", "replace"))
