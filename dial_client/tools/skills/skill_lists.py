"""What a program reads of skills: `Skills`, the skills of a client, and the data of a skill.

Only this module is imported by clients without skills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dial_client.messages.message import Message
from dial_client.messages.model import Instruction
from dial_client.settings.config_types import SkillFolder
from dial_client.tools.catalog import Route


@dataclass(frozen=True, slots=True)
class SkillSummary:
    """A skill in a list."""

    name: str
    """The name by which it is read."""
    description: str
    origin: str
    """The folder of the skill; of a skill of a server, its URI."""
    server: str = ""
    """The server that has the skill; empty for a folder of this machine."""
    is_withheld: bool = False
    """True for a skill of a server that has changed since it was first used, until the user trusts it."""
    allowed_tools: str = ""
    """The tools that the author of the skill would allow. They allow nothing."""
    is_dynamic: bool = False
    """True for a skill that its server generates, without digests: the user is asked before the model reads it."""


@dataclass(frozen=True, slots=True)
class SkillReview:
    """A skill as a user inspects it."""

    summary: SkillSummary
    text: str
    """The ``SKILL.md``, with its front matter."""
    files: tuple[str, ...] = ()
    """The paths of its other files."""
    change: str = ""
    """The diff since the skill was first used; empty without a change."""
    digest: str = ""
    """The SHA-256, in hex digits, of the list of a server's files; a trust in the skill holds for these files."""


class Skills(Protocol):
    """The skills of a client and of its servers: ``dial.skills``."""

    shows_folders: bool
    """Whether texts of skills name their folders on this machine, which a model may need for its tools."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems with skills, one line each."""
        ...

    @property
    def routes(self) -> tuple[Route, ...]:
        """The route of the tool that reads skills."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the skills that were listed last, with their descriptions."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if there is no skill, and no server that may have one."""
        ...

    def set_folders(self, folders: Iterable[SkillFolder]) -> None:
        """Use the skills of these folders. Of two with the same name, the first one is used, and a note says so.

        Raises:
            ConfigError: A folder has no skills, or one of them is wrong; nothing is changed.
        """
        ...

    async def refresh(self, seconds: float = ...) -> None:
        """Read the lists of servers' skills that may have changed, for at most `seconds`."""
        ...

    def describe(self, max_bytes: int) -> tuple[Instruction, ...]:
        """Return the instructions that name the skills, with at most `max_bytes` bytes of names and descriptions."""
        ...

    def find_reason_to_ask(self, name: str) -> str:
        """Return why the user is asked before the model reads a skill; empty for no reason."""
        ...

    async def list(self) -> tuple[SkillSummary, ...]:
        """Return all skills, those of this machine first, each sorted by name."""
        ...

    async def build_message(self, name: str, text: str = "") -> Message:
        """Return the message with which a user begins a task by a skill: its instructions, and then `text`.

        Raises:
            ConfigError: There is no such skill.
            ServerError: The server did not answer, or the skill is withheld or invalid.
        """
        ...

    async def review(self, name: str) -> SkillReview:
        """Return a skill for a user to inspect, also one that is withheld; nothing of it is used or pinned.

        Raises:
            ConfigError: There is no such skill.
            ServerError: The server did not answer, or the skill is invalid.
        """
        ...

    async def trust(self, name: str, digest: str = "") -> SkillReview:
        """Trust a skill of a server as it is now, and return what is trusted, with the change since it was first used.

        Args:
            name: The name of the skill.
            digest: The `SkillReview.digest` of what the user has seen; empty to trust what is there now.

        Raises:
            ConfigError: There is no such skill, it is in a folder of this machine, or it has changed since it was seen.
            ServerError: As `review`.
        """
        ...
