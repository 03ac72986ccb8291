"""Mentions of resources (``@server:uri``) in a user's message, and the message with these resources attached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import anyio

from dial_client.errors import ServerError
from dial_client.messages.message import Content, Message, Part, Role, TextPart, text_of
from dial_client.servers.resources import Resource, ResourceContent, Resources
from dial_client.text.safe_text import one_line, safe
from dial_client.tools import result_content
from dial_client.tools.tool_selection import Keep, shorten

MAX_ATTACHED = 20
"""Resources of one message."""

MENTION = re.compile(r"""(?:(?<=[\s(\[{"'<,;])|\A)@""")
"""The beginning of a mention: not within a word, so that a mail address (``ada@docs:…``) is none."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNKNOWN_SERVER = re.compile(r"([\w.-]+):[A-Za-z][A-Za-z0-9+.-]*://")
_PUNCTUATION = ".,;:!?)]}>\"'"
"""Ends a sentence; it is no part of a URI that no server lists."""
_MAX_NOTE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Attached:
    """A user's message with the resources it mentions."""

    message: Message
    notes: tuple[str, ...] = ()
    """A sentence for each mention that could not be attached; its text stays in the message as it was written."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A resource that a text mentions."""

    server: str
    uri: str


async def attach(
    content: Content, resources: Resources, servers: Iterable[str], keep: Keep, max_chars: int
) -> Attached:
    """Build the message of a user, with the resources it mentions.

    A text, an image or a PDF document is attached as such, anything else as a line that describes it.

    Args:
        content: of the user's message; stays as it is.
        resources: of all servers.
        servers: their names.
        keep: stores the whole of a text that is too long.
        max_chars: characters of one resource that the model reads.
    """
    mentions, notes = await _find_mentions(text_of(content), sorted(servers, key=len, reverse=True), resources)
    if len(mentions) > MAX_ATTACHED:
        notes.append(f"only the first {MAX_ATTACHED} resources are attached")
        mentions = mentions[:MAX_ATTACHED]
    read = await _read_all(mentions, resources, keep, max_chars)
    parts: list[Part] = []
    taint = ""
    for mention in mentions:
        match read[mention]:
            case ServerError() as error:
                notes.append(f"@{mention.server}:{mention.uri} is not attached: {error.problem}")
            case () | "":
                notes.append(f"@{mention.server}:{mention.uri} is empty")
            case found:
                parts += (TextPart(found, foreign=True),) if isinstance(found, str) else found
                taint = taint or (mention.server if resources.is_untrusted(mention.server) else "")
    own = (TextPart(content),) if isinstance(content, str) else content
    message = Message(Role.USER, (*own, *parts) if parts else content, taint=taint)
    return Attached(message, tuple(one_line(note, _MAX_NOTE_CHARS) for note in notes))


async def _find_mentions(text: str, names: Sequence[str], resources: Resources) -> tuple[list[Mention], list[str]]:
    """Return the resources that a text mentions, each once, and notes on mentions that cannot be resolved.

    Args:
        text: of the user's message.
        names: of the servers, the longest first.
        resources: of all servers.
    """
    notes = [f"there is no server {name!r}" for name in _find_unknown_servers(text, names)]
    found = [await _resolve_mention(rest, server, resources) for rest, server in _find_servers(text, names)]
    mentions = [mention for mention in found if mention]
    notes += [
        f"there is no resource {mention.uri!r} at {mention.server!r}"
        for mention in mentions
        if not _URI.match(mention.uri)
    ]
    return list(dict.fromkeys(mention for mention in mentions if _URI.match(mention.uri))), notes


async def _read_all(
    mentions: Iterable[Mention], resources: Resources, keep: Keep, max_chars: int
) -> dict[Mention, Content | ServerError]:
    """Return the content of each mentioned resource, or the error of its server."""
    read: dict[Mention, Content | ServerError] = {}

    async def read_one(mention: Mention) -> None:
        try:
            contents = await resources.read(mention.server, mention.uri)
            read[mention] = shorten(tuple(_to_part(mention, content) for content in contents), max_chars, keep)
        except ServerError as error:
            read[mention] = error

    async with anyio.create_task_group() as group:
        for mention in mentions:
            group.start_soon(read_one, mention)
    return read


def _find_servers(text: str, names: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield, for each mention of a known server, the text behind the server's name, and the name."""
    for found in MENTION.finditer(text):
        server = next((name for name in names if text.startswith(f"{name}:", found.end())), None)
        if server is not None:
            yield text[found.end() + len(server) + 1 :], server


def _find_unknown_servers(text: str, names: Sequence[str]) -> Iterable[str]:
    for mention in MENTION.finditer(text):
        found = _UNKNOWN_SERVER.match(text, mention.end())
        if found and not any(text.startswith(f"{name}:", mention.end()) for name in names):
            yield found.group(1)


async def _resolve_mention(rest: str, server: str, resources: Resources) -> Mention | None:
    """Return the mentioned resource: the longest listed URI that `rest` begins with, else its first word."""
    word = rest.split(maxsplit=1)[0] if rest[:1].strip() else ""
    if not word:
        return None
    try:
        listed = await resources.list(server)
    except ServerError:
        listed = ()
    uris = [resource.uri for resource in listed if _is_mentioned(resource, rest)]
    if uris:
        return Mention(server, max(uris, key=len))
    word = word.rstrip(_PUNCTUATION)
    return Mention(server, word) if word else None


def _is_mentioned(resource: Resource, rest: str) -> bool:
    behind = rest[len(resource.uri) :]
    ends_here = not behind.rstrip(_PUNCTUATION) or not behind.lstrip(_PUNCTUATION)[:1].strip()
    return rest.startswith(resource.uri) and ends_here


def _to_part(mention: Mention, content: ResourceContent) -> Part:
    if content.text is None:
        part = result_content.resource_to_part(content)
        return replace(part, foreign=True) if isinstance(part, TextPart) else part
    kind = f", {content.mime_type}" if content.mime_type else ""
    header = f"[resource {content.uri} of the server {mention.server}{kind}; the user attached it]"
    return TextPart(safe(f"{header}\n{content.text}\n[end of resource {content.uri}]"), foreign=True)
