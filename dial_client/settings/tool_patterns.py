"""Patterns of tools: ``server/tool``, where both parts are `fnmatch` globs (``*``, ``?``, ``[…]``).

Patterns do not match the names under which tools are offered to the model, because these names are ambiguous: a server
chooses the names of its tools, and ``time__delete`` at another server looks like a tool of the server ``time``. A
server's name contains no ``/``, so the first ``/`` of a pattern separates the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

EVERYTHING = "*"
"""The pattern of all tools of all servers."""


def matches(pattern: str, server: str, tool: str) -> bool:
    """Return True if a pattern ``server/tool`` matches a tool; ``*`` alone matches every tool.

    Any other pattern without ``/`` matches nothing.
    """
    if pattern == EVERYTHING:
        return True
    server_pattern, slash, tool_pattern = pattern.partition("/")
    return bool(slash) and _is_named(server_pattern, server) and _is_named(tool_pattern, tool)


def restricts(pattern: str, server: str, tool: str) -> bool:
    """Return True if the pattern of a restriction matches a tool.

    In contrast to `matches`, a pattern without ``/`` matches tools of this name of any server.
    """
    return matches(pattern, server, tool) or ("/" not in pattern and _is_named(pattern, tool))


def names_server(pattern: str, server: str) -> bool:
    """Return True if a pattern can match tools of this server."""
    server_pattern, slash, _ = pattern.partition("/")
    return not slash or _is_named(server_pattern, server)


def matches_name(patterns: Iterable[str], name: str) -> bool:
    """Return True if at least one of the globs matches a name."""
    return any(_is_named(pattern, name) for pattern in patterns)


def _is_named(pattern: str, name: str) -> bool:
    return pattern == name or fnmatchcase(name, pattern)
