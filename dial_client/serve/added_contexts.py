"""What a program shows its user, and adds to the user's message: the model reads it as untrusted text of the program.

A program is an MCP App of a server, on the page, or a front end of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dial_client.messages.message import Message, Role, TextPart
from dial_client.runtime.safe_text import sanitize, to_one_line

# Contexts per message. The page keeps the same number of apps open.
MAX_CONTEXTS = 8
# Characters of one context.
MAX_CONTEXT = 20_000
# The questions in which a context is looked for that has not changed since.
_RECENT = 10
_MAX_HEAD = 300


@dataclass(frozen=True, slots=True)
class AddedContext:
    """A text of a program."""

    source: str
    """What has written it, as a source of untrusted content: the name of a server, or "the front end"."""
    part: TextPart


def build_context(source: str, head: str, text: str) -> AddedContext:
    """Return a context with a line before it that says what it is, ``[HEAD]``, and one after it."""
    lines = f"[{to_one_line(head, _MAX_HEAD)}]\n{text}\n[end of context]"
    return AddedContext(source, TextPart(sanitize(lines), foreign=True))


def select_new(contexts: Iterable[AddedContext], history: Sequence[Message]) -> tuple[AddedContext, ...]:
    """Return the contexts that the last questions of a conversation do not have as they are now.

    A front end sends its contexts with every message: each copy would be paid for in all later requests.
    """
    questions = [message for message in history if message.role is Role.USER and not message.steers]
    # A text alone has no context, and its characters are not looked at one by one.
    contents = [message.content for message in questions[-_RECENT:] if not isinstance(message.content, str)]
    latest = {_find_head(part): part for content in contents for part in content}
    return tuple(context for context in contexts if latest.get(_find_head(context.part)) != context.part)


def _find_head(part: object) -> str:
    return part.text.partition("\n")[0] if isinstance(part, TextPart) and part.foreign else ""


def add_contexts(message: Message, contexts: Sequence[AddedContext]) -> Message:
    """Return a user's message with the contexts as further parts, and their sources as its untrusted sources."""
    if not contexts:
        return message
    content = (TextPart(message.content),) if isinstance(message.content, str) else message.content
    sources = dict.fromkeys(source for source in (message.taint, *(each.source for each in contexts)) if source)
    return replace(message, content=(*content, *(each.part for each in contexts)), taint=", ".join(sources))
