"""Prompts of servers, for the user to choose and to fill in (MCP, "Prompts")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dial_client.messages.message import Icon, Message, Role, TextPart, describe, read_icons
from dial_client.servers.connection import Connection
from dial_client.servers.notifications import Listing
from dial_client.servers.resources import ListCache, ask_server, clean_text, complete_argument
from dial_client.tools import result_content
from dial_client.tools.taint import is_untrusted

if TYPE_CHECKING:
    from mcp_types import Prompt as SDKPrompt


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """An argument of a prompt; its value is always text."""

    name: str
    title: str | None = None
    description: str = ""
    required: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that a server lists."""

    server: str
    """The server's name in the configuration."""
    name: str
    """The name as the server sent it: make it safe before display."""
    title: str | None = None
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    icons: tuple[Icon, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        arguments = [argument.to_dict() for argument in self.arguments]
        return {**asdict(self), "arguments": arguments, "icons": [icon.to_dict() for icon in self.icons]}


class Prompts:
    """The prompts of all servers: ``dial.prompts``."""

    def __init__(self, connections: Mapping[str, Connection]) -> None:
        self._connections = connections
        self._listed = ListCache(connections, Listing.PROMPTS, "prompts", "name", _to_prompt)

    async def list(self, server: str | None = None) -> tuple[Prompt, ...]:
        """Return the prompts of a server, or of all servers, with the rules of `Resources.list`.

        Raises:
            ServerError: There is no such server, or its list cannot be read.
        """
        return await self._listed.get(server)

    async def get(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """Return the messages of a prompt with its arguments filled in, to start or continue a conversation.

        Args:
            server: The server that lists the prompt.
            name: The prompt's own name.
            arguments: The values of its arguments.

        Raises:
            ServerGone: The server is not available.
            ServerError: There is no such server or prompt, the arguments are invalid, or the server did not answer in
                time.
        """
        given = dict(arguments or {})
        prompt = await ask_server(self._connections, server, lambda client: client.get_prompt(name, given))
        taint = server if is_untrusted(self._connections.get(server)) else ""
        return tuple(replace(_to_message(message.role, message.content), taint=taint) for message in prompt.messages)

    async def complete(
        self, server: str, name: str, argument: str, typed: str = "", arguments: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """Return at most 100 possible values for an argument of a prompt; empty if the server suggests none.

        Args:
            server: The server that lists the prompt.
            name: The prompt's own name.
            argument: The name of the argument to complete.
            typed: The start of its value.
            arguments: The values of other arguments.

        Raises:
            ServerError: There is no such server, or it refused the request.
        """
        from mcp_types import PromptReference

        reference = PromptReference(type="ref/prompt", name=name)
        return await complete_argument(self._connections, server, reference, argument, typed, arguments)


def _to_message(role: str, block: Any) -> Message:
    part = result_content.to_part(block)
    if isinstance(part, TextPart):
        return Message(Role(role), part.text)
    # No model accepts an image or a document in an assistant message.
    return Message(Role.USER, (part,)) if role == Role.USER else Message.assistant(f"[{describe(part)}]")


def _to_prompt(server: str, prompt: SDKPrompt) -> Prompt:
    arguments = [
        PromptArgument(given.name, clean_text(given.title) or None, clean_text(given.description), bool(given.required))
        for given in prompt.arguments or ()
    ]
    title, description = clean_text(prompt.title) or None, clean_text(prompt.description)
    return Prompt(server, prompt.name, title, description, tuple(arguments), read_icons(prompt.icons))
