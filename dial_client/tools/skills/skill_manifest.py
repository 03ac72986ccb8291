"""A skill of an MCP server, as the server lists it, and the manifest of its files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages.errors import ServerError
from dial_client.runtime.safe_text import to_one_line
from dial_client.tools.skills.skill_document import FILE_NAME

# What an entry has in place of digests, if the server generates the skill.
DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class ServerSkill:
    """A skill of a server, with its manifest; none of its files is read yet."""

    server: str
    """The server's name in the configuration: a skill is identified by it and by its URI, never by its name."""
    uri: str
    """The URI of its ``SKILL.md``, unchanged."""
    name: str
    description: str
    front_matter: Mapping[str, Any] = field(repr=False)
    digests: Mapping[str, tuple[str, int]] = field(repr=False)
    """The SHA-256 and the size of each file, by its path in the skill with ``/``; empty if `is_dynamic`."""

    @property
    def is_dynamic(self) -> bool:
        """True if the server generates the skill: there are no digests, and nothing of it can be pinned."""
        return not self.digests

    @property
    def root(self) -> str:
        """The URI of the skill's folder, with a slash at its end."""
        return self.uri.removesuffix(FILE_NAME)

    @property
    def path(self) -> str:
        """The path of the skill at its server: ``acme/billing/refunds``."""
        return re.sub(r"^[a-zA-Z][a-zA-Z0-9+.-]*://", "", self.root).strip("/")

    @property
    def allowed_tools(self) -> str:
        """What the skill says of tools, for the user; it allows nothing."""
        return to_one_line(str(self.front_matter.get("allowed-tools") or ""), 400)

    @property
    def manifest(self) -> str:
        """The files with their digests, one a line: what a user's trust is bound to."""
        if self.is_dynamic:
            return DYNAMIC
        return "\n".join(f"{name} sha256:{digest}" for name, (digest, _) in sorted(self.digests.items()))

    @property
    def digest(self) -> str:
        """The SHA-256 of the manifest, in hex digits."""
        return hashlib.sha256(self.manifest.encode()).hexdigest()


class SkillProblem(ServerError):
    """A skill of a server cannot be used: it is invalid, or its files are not those of its manifest."""
