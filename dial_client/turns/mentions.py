"""Mentions in a user's message: of resources (``@server:uri``), which are attached, and of agents, which are called.

Agents are named at the start of a message (``@reviewer look at the diff``). The host makes these calls itself, before
it asks the model: which agent works on the message is then the choice of the user, and no model can leave it out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from dial_client.messages.errors import ServerError
from dial_client.messages.message import (
    MAIN,
    Content,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallRequest,
    ToolSpec,
    extract_text,
)
from dial_client.providers.tool_call_codec import create_call_id
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import find_nearest
from dial_client.servers.resources import Resource, ResourceContent, Resources
from dial_client.settings.agent import AGENTS
from dial_client.tools import result_content
from dial_client.tools.catalog import HAND_BACK, Route
from dial_client.tools.result_content import StoreResult, shorten

# Maximum number of resources attached to one message.
MAX_ATTACHED = 20

# The start of a mention. It cannot be inside a word, so an email address (``ada@docs:…``) is not a mention.
MENTION = compile_lazily(r"""(?:(?<=[\s(\[{"'<,;])|\A)@""")
_URI = compile_lazily(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNKNOWN_SERVER = compile_lazily(r"([\w.-]+):[A-Za-z][A-Za-z0-9+.-]*://")
# Characters that end a sentence; removed from the end of a URI that no server lists.
_PUNCTUATION = ".,;:!?)]}>\"'"
_MAX_NOTE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Attached:
    """A user's message with the resources it mentions."""

    message: Message
    notes: tuple[str, ...] = ()
    """A sentence for each mention that could not be attached; the mention stays in the message as text."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A resource that a text mentions."""

    server: str
    uri: str


async def attach(
    content: Content, resources: Resources, servers: Iterable[str], store_result: StoreResult, max_chars: int
) -> Attached:
    """Build a user's message with the resources it mentions.

    Texts, images and PDF documents are attached with their content; any other resource is attached as a line that
    describes it.

    Args:
        content: The content of the user's message; it stays unchanged.
        resources: The resources of all servers.
        servers: The names of the servers.
        store_result: Stores the full text of a resource that is too long.
        max_chars: Maximum characters of one resource that the model reads.
    """
    mentions, notes = await _find_mentions(extract_text(content), sorted(servers, key=len, reverse=True), resources)
    if len(mentions) > MAX_ATTACHED:
        notes.append(f"only the first {MAX_ATTACHED} resources are attached")
        mentions = mentions[:MAX_ATTACHED]
    read = await _read_all(mentions, resources, store_result, max_chars)
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
    content_parts = (TextPart(content),) if isinstance(content, str) else content
    message = Message(Role.USER, (*content_parts, *parts) if parts else content, taint=taint)
    return Attached(message, tuple(to_one_line(note, _MAX_NOTE_CHARS) for note in notes))


async def _find_mentions(text: str, names: Sequence[str], resources: Resources) -> tuple[list[Mention], list[str]]:
    """Return the resources that a text mentions, each once, and notes on mentions that cannot be resolved.

    Args:
        text: The text of the user's message.
        names: The names of the servers, the longest first.
        resources: The resources of all servers.
    """
    notes: list[str] = []
    mentions: list[Mention] = []
    for sign in MENTION.finditer(text):
        server = next((name for name in names if text.startswith(f"{name}:", sign.end())), None)
        if server is not None:
            found = await _resolve_mention(text[sign.end() + len(server) + 1 :], server, resources)
            mentions += [found] if found else []
        elif unknown := _UNKNOWN_SERVER.match(text, sign.end()):
            notes.append(f"there is no server {unknown[1]!r}")
    notes += [
        f"there is no resource {mention.uri!r} at {mention.server!r}"
        for mention in mentions
        if not _URI.match(mention.uri)
    ]
    return list(dict.fromkeys(mention for mention in mentions if _URI.match(mention.uri))), notes


async def _read_all(
    mentions: Iterable[Mention], resources: Resources, store_result: StoreResult, max_chars: int
) -> dict[Mention, Content | ServerError]:
    """Return the content of each mentioned resource, or the error of its server."""
    read: dict[Mention, Content | ServerError] = {}

    async def read_one(mention: Mention) -> None:
        try:
            contents = await resources.read(mention.server, mention.uri)
            read[mention] = shorten(tuple(_to_part(mention, content) for content in contents), max_chars, store_result)
        except ServerError as error:
            read[mention] = error

    async with anyio.create_task_group() as group:
        for mention in mentions:
            group.start_soon(read_one, mention)
    return read


async def _resolve_mention(text: str, server: str, resources: Resources) -> Mention | None:
    """Return the mentioned resource: the longest listed URI at the start of `text`, otherwise its first word."""
    word = text.split(maxsplit=1)[0] if text[:1].strip() else ""
    if not word:
        return None
    try:
        listed = await resources.list(server)
    except ServerError:
        listed = ()
    uris = [resource.uri for resource in listed if _is_mentioned(resource, text)]
    if uris:
        return Mention(server, max(uris, key=len))
    word = word.rstrip(_PUNCTUATION)
    return Mention(server, word) if word else None


def _is_mentioned(resource: Resource, text: str) -> bool:
    following = text[len(resource.uri) :]
    ends_here = not following.rstrip(_PUNCTUATION) or not following.lstrip(_PUNCTUATION)[:1].strip()
    return text.startswith(resource.uri) and ends_here


def _to_part(mention: Mention, content: ResourceContent) -> Part:
    if content.text is None:
        part = result_content.convert_blob(content.uri, content.mime_type or "", content.blob or "")
        return replace(part, foreign=True) if isinstance(part, TextPart) else part
    kind = f", {content.mime_type}" if content.mime_type else ""
    header = f"[resource {content.uri} of the server {mention.server}{kind}; the user attached it]"
    return TextPart(sanitize(f"{header}\n{content.text}\n[end of resource {content.uri}]"), foreign=True)


# The most agents that one message calls.
MAX_MENTIONED = 8
_AGENT_MENTION = r"\s*@([a-z0-9]+(?:-[a-z0-9]+)*)(?=\s|\Z)"
# What may be meant as one. No file with an ending or in a folder, no resource of a server, and no address of e-mail.
_NEAR_MENTION = r"\s*@([\w-]{1,60}[:,]?)(?=\s|\Z)"


def list_agents(tools: Collection[ToolSpec]) -> dict[str, str]:
    """Return the agents among tools: the first line of each description, by the name of the agent."""
    return {tool.tool: tool.description.partition("\n")[0] for tool in tools if tool.server == AGENTS}


def split_mentions(text: str, agents: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return the agents that a text names at its start, each once, and the rest of the text.

    A name later in the text is text: only the start of a message says for whom it is.
    """
    names: dict[str, None] = {}
    end, pattern = 0, re.compile(_AGENT_MENTION)
    while (mention := pattern.match(text, end)) and mention[1] in agents and len(names) < MAX_MENTIONED:
        names[mention[1]] = None
        end = mention.end()
    return tuple(names), text[end:].lstrip() if names else text


def build_agent_calls(question: Message, routes: Mapping[str, Route]) -> tuple[ToolCallRequest, ...]:
    """Return the calls of the agents that a question names at its start; empty if it names none, or has no task.

    The task of each is the rest of the text, with the attached texts: an agent sees nothing else of the conversation,
    unless it takes the conversation over.

    Args:
        question: The last message of a conversation.
        routes: The routes of the tools of the turn, by their offered names.
    """
    parts = _find_addressed(question)
    if not parts:
        return ()
    offered = _list_offered(routes)
    names, rest = split_mentions(parts[0].text, offered)
    texts = [rest, *(part.text for part in parts[1:])]
    task = "\n\n".join(filter(str.strip, texts))
    calls: list[ToolCallRequest] = []
    for name in (offered[name] for name in names):
        if not _has_task(routes[name]):
            calls.append(ToolCallRequest(create_call_id(), name, {}))
        elif task:
            calls.append(ToolCallRequest(create_call_id(), name, {"task": task}))
    return tuple(calls)


def describe_missed_mention(question: Message, routes: Mapping[str, Route]) -> str:
    """Return a note about an agent that is not called though a question begins as if for it; empty if there is none.

    It has no task, or its name is only similar: people begin messages with the names of files and of persons, too.
    """
    parts, offered = _find_addressed(question), _list_offered(routes)
    if not parts or not offered:
        return ""
    names, rest = split_mentions(parts[0].text, offered)
    if names and not rest and len(parts) == 1:
        waiting = [name for name in names if _has_task(routes[offered[name]])]
        return f"@{waiting[0]} has no task, so it was not asked: write the task behind the name" if waiting else ""
    word = re.match(_NEAR_MENTION, rest)
    nearest = find_nearest(word[1].rstrip(":,"), offered) if word and word[1] not in offered else ""
    if word is None or not nearest:
        return ""
    return f"there is no agent @{word[1]}, so your model has read the message; did you mean @{nearest}?"


def _has_task(route: Route) -> bool:
    """Return False for an agent that takes the conversation over, and reads the message itself."""
    return "task" in route.spec.input_schema.get("properties", {})


def _find_addressed(question: Message) -> tuple[TextPart, ...]:
    """Return the texts of a question whose first one, which the user has typed, may name agents; empty if it cannot."""
    parts = (TextPart(question.content),) if isinstance(question.content, str) else question.content
    first = parts[0] if parts else None
    # What a server has written names nobody.
    if question.role is not Role.USER or question.steers or not isinstance(first, TextPart) or first.foreign:
        return ()
    if "@" not in first.text[:1] and not first.text[:1].isspace():
        return ()
    return tuple(part for part in parts if isinstance(part, TextPart))


def _list_offered(routes: Mapping[str, Route]) -> dict[str, str]:
    """Return the offered names of the agents by the names by which a user calls them."""
    offered = {route.spec.tool: name for name, route in routes.items() if route.spec.server == AGENTS}
    return offered | ({MAIN: HAND_BACK} if HAND_BACK in routes else {})
