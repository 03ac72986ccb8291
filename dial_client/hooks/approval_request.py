"""The texts of an approval request: the tool's real names, its server's claims, and all arguments.

MCP 2026-07-28, server/tools: clients must treat annotations as untrusted; so are titles and descriptions. An approval
request marks them as claims of the server, and identifies the tool by its names in the configuration and the protocol.
The arguments keep their line breaks, in a form like YAML: each line begins a name or an item, or is indented below one;
invisible characters are escaped. The page has the same form (``serve/page/argument_block.js``).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import count_unseen, describe_removed, escape_unseen

# The nesting depth from which on a value is shown as one line of JSON.
MAX_DEPTH = 20
_PLAIN_KEY = compile_lazily(r"[A-Za-z0-9_.$-]+\Z")
_NEEDS_QUOTES = compile_lazily(
    r"""\Z|[\s"'\[\]{}|>&*!%@`#,?-]|[.+]?[0-9]|(?:true|false|null|yes|no|~)\Z|.*(?:\s|:)\Z|.*: """
)


def format_argument(name: str, value: Any) -> list[str]:
    """Return the lines that show one argument, with invisible characters escaped."""
    return [escape_unseen(line) for line in _format_entry(f"{_format_key(name)}:", value, 0)]


def format_name(name: str) -> str:
    """Return the name of an argument, quoted if it is not plain, with invisible characters escaped."""
    return escape_unseen(_format_key(name))


def format_value(value: Any) -> list[str]:
    """Return the lines that show a value: the first stands beside its name, further lines are indented below.

    The first line of a text with line breaks is ``|``, that of a list or an object with content is empty.
    """
    first, *lines = _format_entry("", value, 0)
    return [escape_unseen(line) for line in (first.removeprefix(" "), *lines)]


def _format_entry(head: str, value: Any, depth: int) -> Iterator[str]:
    """Yield the lines of a value after its `head`: on the same line, or indented below it."""
    if isinstance(value, str):
        first, *lines = _format_text(value)
        yield f"{head} {first}"
        yield from (f"  {line}" for line in lines)
    elif isinstance(value, Mapping | list) and value and depth < MAX_DEPTH:
        yield head
        pairs = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
        for key, item in pairs:
            inner = "-" if key is None else f"{_format_key(str(key))}:"
            yield from (f"  {line}" for line in _format_entry(inner, item, depth + 1))
    else:
        yield f"{head} {format_json(value)}"


def _format_text(value: str) -> list[str]:
    """Return the lines of a text; the lines of a multi-line text follow a line ``|``."""
    text = value.replace("\r\n", "\n")
    if "\n" in text:
        return ["|", *text.removesuffix("\n").split("\n")]
    return [format_json(text) if _NEEDS_QUOTES.match(text) else text]


def _format_key(name: str) -> str:
    return name if _PLAIN_KEY.match(name) else format_json(name)


def format_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


# The most characters of a name that are shown in a sentence.
MAX_NAME = 100
_PLAIN_NAME = compile_lazily(r"[A-Za-z0-9_./:@+-]+\Z")
_FOREIGN_SPACE = compile_lazily(r"[^\S ]")
_MAX_LETTERS = 5


def quote_name(name: str, limit: int = MAX_NAME, *, notes: bool = True) -> str:
    """Return a name for use in a sentence: without line breaks and invisible characters, and with a visible end.

    A plain name is returned unchanged. Any other name is quoted, with escapes for invisible characters and unusual
    spaces. Letters outside of ASCII are listed, because they may look like other letters.

    Args:
        name: The name in the configuration or from a server.
        limit: The most characters of the name to show.
        notes: True to add the length of a shortened name, and its letters outside of ASCII.
    """
    if _PLAIN_NAME.match(name) and len(name) <= limit:
        return name
    written = escape_unseen(
        name[:limit].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    )
    written = _FOREIGN_SPACE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", written)
    end = "…" if len(name) > limit else ""
    quoted = f'"{written}{end}"'
    length = [f"{len(name):,} characters"] if end else []
    return (
        " ".join([quoted, *(f"({note})" for note in [*length, *_describe_foreign_letters(name)])]) if notes else quoted
    )


def _describe_foreign_letters(name: str) -> list[str]:
    found = dict.fromkeys(char for char in name if not char.isascii() and unicodedata.category(char)[0] in "LMN")
    if not found:
        return []
    named = ", ".join(f"U+{ord(char):04X}" for char in list(found)[:_MAX_LETTERS])
    return [f"with letters outside of ASCII: {named}{', …' if len(found) > _MAX_LETTERS else ''}"]


def to_claims(tool: ToolSpec) -> dict[str, Any]:
    """Return the claims of a tool's server: ``{"title", "description", "annotations": {"readOnlyHint": true}}``.

    Nobody claims anything of the host's own tools.
    """
    if not tool.server:
        return {"title": None, "description": "", "annotations": {}}
    hints = {
        "readOnlyHint": tool.read_only or None,
        "idempotentHint": tool.idempotent or None,
        "destructiveHint": tool.destructive,
        "openWorldHint": tool.open_world,
    }
    annotations = {name: hint for name, hint in hints.items() if hint is not None}
    return {"title": tool.title, "description": tool.description, "annotations": annotations}


_EFFECTS = {
    "destructiveHint": "destructive",
    "readOnlyHint": "read-only",
    "openWorldHint": "open world",
    "idempotentHint": "idempotent",
}


def list_effects(tool: ToolSpec) -> list[str]:
    """Return the effects that the server claims for its tool: ``["destructive", "open world"]``."""
    claimed = to_claims(tool)["annotations"]
    return [effect for hint, effect in _EFFECTS.items() if claimed.get(hint)]


_HINTS = {
    ("readOnlyHint", True): "that it is read-only",
    ("destructiveHint", True): "that it may destroy something",
    ("destructiveHint", False): "that it destroys nothing",
    ("openWorldHint", True): "that it reaches beyond its own data, the web for example",
    ("openWorldHint", False): "that it stays within its own data",
    ("idempotentHint", True): "that a second call does no more than the first",
}


def describe_claims(tool: ToolSpec) -> list[str]:
    """Return the server's claims as sentences that name the server as their source."""
    claims = to_claims(tool)
    title = " ".join(escape_unseen(claims["title"] or "").split())
    sentences = [f"it calls itself: {title}"] if title and title != tool.tool else []
    if claims["description"].strip():
        sentences.append(f"the server says: {escape_unseen(claims['description'].strip())}")
    hints = [_HINTS[pair] for pair in claims["annotations"].items() if pair in _HINTS]
    return sentences + ([f"the server says {', '.join(hints)}"] if hints else [])


def count_unseen_arguments(call: ToolCallRequest) -> int:
    """Return the number of invisible characters in a call's arguments, which the server receives unchanged."""
    return _count(dict(call.arguments), 0)


def _count(value: Any, depth: int) -> int:
    if isinstance(value, str):
        return count_unseen(value.replace("\r\n", "\n"))
    if depth > 100 or not isinstance(value, dict | list):
        return 0
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return sum(_count(part, depth + 1) for part in parts)


def describe_invisible(call: ToolCallRequest, tool: ToolSpec) -> list[str]:
    """Return notes on invisible characters that were removed from the server's texts, or escaped in the arguments."""
    notes = [f"{describe_removed(tool.removed_invisible)} from what the server says"] if tool.removed_invisible else []
    if unseen := count_unseen_arguments(call):
        kind = "invisible character is" if unseen == 1 else "invisible characters are"
        notes.append(f"{unseen:,} {kind} written out in the arguments")
    return notes
