"""Prompts: what servers have to say for the user, who chooses one and fills it in (MCP, "Prompts")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dial_client.icons import Icon, icons_of
from dial_client.messages import Message, Role, TextPart, describe
from dial_client.servers.connection import Connection
from dial_client.servers.list_cache import ListCache, ready
from dial_client.servers.notifications import Listing
from dial_client.servers.resources import completions, seconds_for, words
from dial_client.servers.tool_listing import Note, all_pages
from dial_client.tools import result_content

if TYPE_CHECKING:
    from mcp import Client


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """What a prompt is filled in with; always text."""

    name: str
    title: str | None = None
    description: str = ""
    required: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Give JSON types only."""
        said = {"name": self.name, "title": self.title, "description": self.description}
        return said | {"required": self.required}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that a server lists."""

    server: str
    """The server's name in the configuration."""
    name: str
    """As the server writes it: what is shown of it has to be made safe."""
    title: str | None = None
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    icons: tuple[Icon, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give JSON types only."""
        return {
            "server": self.server,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": [argument.to_dict() for argument in self.arguments],
            "icons": [icon.to_dict() for icon in self.icons],
        }


class Prompts:
    """The prompts of all servers: ``dial.prompts``."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._connections = connections
        self._listed = ListCache(connections, Listing.PROMPTS, _read_prompts)

    async def list(self, server: str | None = None) -> tuple[Prompt, ...]:
        """Give the prompts of a server; without one those of all. As `Resources.list`.

        Raises:
            ServerError: there is no such server, or its list cannot be read.
        """
        return await self._listed.of(server)

    async def get(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """Give a prompt, filled in: messages to begin a conversation with, or to go on with.

        Args:
            server: whose prompt it is.
            name: the prompt's own name.
            arguments: what it is filled in with.

        Raises:
            ServerGone: the server is not available.
            ServerError: there is no such server or prompt, the arguments are not right, or it was not there in time.
        """

        async def request(client: Client) -> tuple[Message, ...]:
            got = await client.get_prompt(name, dict(arguments or {}))
            return tuple(replace(_message(one.role, one.content), taint=taint) for one in got.messages)

        connection = await ready(self._connections, server)
        taint = server if connection.settings is not None and connection.settings.untrusted else ""
        return await connection.ask(request, seconds_for(connection))

    async def complete(
        self, server: str, name: str, argument: str, typed: str = "", given: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """Give what an argument of a prompt may be, at most a hundred values; none where the server offers none.

        Args:
            server: whose prompt it is.
            name: the prompt's own name.
            argument: to be completed.
            typed: the beginning of its value.
            given: the values of other arguments.

        Raises:
            ServerError: there is no such server, or it refused.
        """
        from mcp_types import PromptReference

        reference = PromptReference(type="ref/prompt", name=name)
        connection = await ready(self._connections, server)
        return await completions(connection, reference, argument, typed, given)


def _message(role: str, block: Any) -> Message:
    part = result_content.part_of(block)
    if isinstance(part, TextPart):
        return Message(Role(role), part.text)
    # No model takes an image or a document as words of its own.
    return Message(Role.USER, (part,)) if role == Role.USER else Message.assistant(f"[{describe(part)}]")


async def _read_prompts(server: str, client: Client, note: Note) -> tuple[Prompt, ...]:
    async def page(cursor: str | None) -> tuple[Sequence[Prompt], str | None]:
        read = await client.list_prompts(cursor=cursor)
        found = [
            Prompt(
                server=server,
                name=one.name,
                title=words(one.title) or None,
                description=words(one.description),
                arguments=tuple(
                    PromptArgument(
                        argument.name,
                        words(argument.title) or None,
                        words(argument.description),
                        bool(argument.required),
                    )
                    for argument in one.arguments or ()
                ),
                icons=icons_of(one.icons),
            )
            for one in read.prompts
        ]
        return found, read.next_cursor

    return await all_pages("prompts", page, lambda prompt: prompt.name, note)
