"""Patterns that name tools: ``server/tool``, each half a glob (``*``, ``?``, ``[…]``) as `fnmatch` reads them.

The name a tool is offered to the model by plays no part: a server chooses how its tools are called, and
``time__delete`` at another server looks like a tool of the server ``time``. A server's name holds no ``/``, so the
first one always ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

EVERYTHING = "*"
"""The pattern of all tools of all servers."""


def matches(pattern: str, server: str, tool: str) -> bool:
    """Return True if a pattern of server and tool name matches a tool; ``*`` alone matches every tool.

    A pattern without ``/`` names no server, and matches nothing.
    """
    if pattern == EVERYTHING:
        return True
    server_pattern, slash, tool_pattern = pattern.partition("/")
    return bool(slash) and _is_named(server_pattern, server) and _is_named(tool_pattern, tool)


def restricts(pattern: str, server: str, tool: str) -> bool:
    """Return True if the pattern of a restriction matches; a pattern without ``/`` is a tool's name at any server."""
    return matches(pattern, server, tool) or ("/" not in pattern and _is_named(pattern, tool))


def names_server(pattern: str, server: str) -> bool:
    """Return True if a pattern can match tools of this server."""
    server_pattern, slash, _ = pattern.partition("/")
    return not slash or _is_named(server_pattern, server)


def any_name(patterns: Iterable[str], name: str) -> bool:
    """Return True if one of these globs matches a name."""
    return any(_is_named(pattern, name) for pattern in patterns)


def _is_named(pattern: str, name: str) -> bool:
    return pattern == name or fnmatchcase(name, pattern)
