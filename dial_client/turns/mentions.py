"""``@server:uri`` in what a person says: the resource goes along with the message, marked as what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import anyio

from dial_client.errors import ServerError
from dial_client.messages import Content, Message, Part, Role, TextPart, text_of
from dial_client.servers.resources import Resource, ResourceContent, Resources
from dial_client.text.safe_text import one_line, safe
from dial_client.tools import result_content
from dial_client.tools.tool_selection import Keep, shortened

MAX_ATTACHED = 20
"""Resources of one message."""

MENTION = re.compile(r"""(?:(?<=[\s(\[{"'<,;])|\A)@""")
"""Where a resource may be named: not within a word, so that no address (``ada@docs:…``) is taken for one."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NO_SERVER = re.compile(r"([\w.-]+):[A-Za-z][A-Za-z0-9+.-]*://")
_BEHIND = ".,;:!?)]}>\"'"
"""What ends a sentence, not a URI that nobody lists."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A message of the person's, with what it refers to."""

    message: Message
    notes: tuple[str, ...] = ()
    """What could not be attached, and why, a line each; in the message it is left as it was written."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A place in a text where a resource is meant."""

    server: str
    uri: str


async def attach(said: Content, resources: Resources, servers: Iterable[str], keep: Keep, max_chars: int) -> Attached:
    """Make the message of what a person says, with the resources it mentions.

    A text, an image or a PDF document is attached as such, anything else as a line that says what it is.

    Args:
        said: by the person; it stays as it is.
        resources: of all servers.
        servers: their names.
        keep: puts a text aside that is too long.
        max_chars: characters of one resource that the model is given.
    """
    text = text_of(said)
    names = sorted(servers, key=len, reverse=True)
    notes = [f"there is no server {name!r}" for name in _unknown(text, names)]
    found = [await _mention(rest, server, resources) for rest, server in _rests(text, names)]
    notes += [f"there is no resource {one.uri!r} at {one.server!r}" for one in found if one and not _URI.match(one.uri)]
    wanted = list(dict.fromkeys(one for one in found if one and _URI.match(one.uri)))
    if len(wanted) > MAX_ATTACHED:
        notes.append(f"only the first {MAX_ATTACHED} resources are attached")
    read: dict[Mention, Content | ServerError] = {}

    async def add(mention: Mention) -> None:
        try:
            contents = await resources.read(mention.server, mention.uri)
            read[mention] = shortened(tuple(_part(mention, one) for one in contents), max_chars, keep)
        except ServerError as error:
            read[mention] = error

    async with anyio.create_task_group() as group:
        for mention in wanted[:MAX_ATTACHED]:
            group.start_soon(add, mention)
    parts: list[Part] = []
    taint = ""
    for mention in wanted[:MAX_ATTACHED]:
        match read[mention]:
            case ServerError() as error:
                notes.append(f"@{mention.server}:{mention.uri} is not attached: {error.problem}")
            case () | "":
                notes.append(f"@{mention.server}:{mention.uri} is empty")
            case content:
                parts += (TextPart(content, foreign=True),) if isinstance(content, str) else content
                taint = taint or (mention.server if resources.is_untrusted(mention.server) else "")
    own = (TextPart(said),) if isinstance(said, str) else said
    message = Message(Role.USER, (*own, *parts) if parts else said, taint=taint)
    return Attached(message, tuple(one_line(note, 300) for note in notes))


def _rests(text: str, names: list[str]) -> Iterable[tuple[str, str]]:
    """Give, for each place where a server is named, what stands behind it, and the server."""
    for at in MENTION.finditer(text):
        server = next((name for name in names if text.startswith(f"{name}:", at.end())), None)
        if server is not None:
            yield text[at.end() + len(server) + 1 :], server


def _unknown(text: str, names: list[str]) -> Iterable[str]:
    for at in MENTION.finditer(text):
        found = _NO_SERVER.match(text, at.end())
        if found and not any(text.startswith(f"{name}:", at.end()) for name in names):
            yield found.group(1)


async def _mention(rest: str, server: str, resources: Resources) -> Mention | None:
    """Find out which resource is meant: the longest that is listed, else what stands before the next blank."""
    word = rest.split(maxsplit=1)[0] if rest[:1].strip() else ""
    if not word:
        return None
    try:
        listed = await resources.list(server)
    except ServerError:
        listed = ()
    uris = [one.uri for one in listed if _stands_in(one, rest)]
    if uris:
        return Mention(server, max(uris, key=len))
    word = word.rstrip(_BEHIND)
    return Mention(server, word) if word else None


def _stands_in(resource: Resource, rest: str) -> bool:
    behind = rest[len(resource.uri) :]
    return rest.startswith(resource.uri) and (not behind.rstrip(_BEHIND) or not behind.lstrip(_BEHIND)[:1].strip())


def _part(mention: Mention, content: ResourceContent) -> Part:
    if content.text is None:
        part = result_content.resource_part(content)
        return replace(part, foreign=True) if isinstance(part, TextPart) else part
    kind = f", {content.mime_type}" if content.mime_type else ""
    header = f"[resource {content.uri} of the server {mention.server}{kind}; the user attached it]"
    return TextPart(safe(f"{header}\n{content.text}\n[end of resource {content.uri}]"), foreign=True)
