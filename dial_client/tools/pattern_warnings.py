"""Warnings about patterns that match nothing: a typing error would silently switch off a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import Effect
from dial_client.settings.tool_patterns import EVERYTHING, any_name, matches, names_server, restricts
from dial_client.text.safe_text import one_line
from dial_client.tools.catalog import RESERVED
from dial_client.tools.policy import PolicyRules

Tools = Mapping[str, tuple[str, ...] | None]
"""For each server its tools' own names; None if they are not known yet."""


def notes(
    rules: PolicyRules, tools: Tools, entries: Mapping[str, ServerSettings | None], *, all_servers: bool = False
) -> Iterator[str]:
    """Yield a line for each pattern that matches nothing.

    Args:
        rules: with their patterns.
        tools: of all servers.
        entries: of the servers, with patterns of their own.
        all_servers: a policy's rule about a server that is not there is named too; it may be about one that another
            project has.
    """
    for pattern in rules.allow:
        yield from _of_allow(rules.name_source(Effect.ALLOW, pattern), pattern, tools)
    for pattern in rules.deny:
        yield from _of_deny(f"{rules.name_source(Effect.DENY, pattern)} {pattern!r}", pattern, tools)
    for rule in rules.policy:
        for pattern in rule.tools:
            if all_servers or any(names_server(pattern, name) for name in tools):
                check = _of_pattern if rule.effect is Effect.ALLOW else _of_deny
                yield from check(f"policy {rule.name}: {pattern!r}", pattern, tools)
    for name, entry in entries.items():
        if entry is not None:
            yield from _of_names(f"autoApprove of {name!r}", entry.auto_approve, tools[name])
            yield from _of_names(f"untrusted of {name!r}", entry.untrusted, tools[name])


def _of_allow(source: str, pattern: str, tools: Tools) -> Iterator[str]:
    if "/" in pattern or pattern == EVERYTHING:
        yield from _of_pattern(f"{source} {pattern!r}", pattern, tools)
        return
    server, _, rest = pattern.partition("__")
    found = [name for name, own in tools.items() if own and any(restricts(pattern, name, tool) for tool in own)]
    meant = f"{server}/{rest}" if rest and server in tools else f"{found[0] if found else 'SERVER'}/{pattern}"
    yield f"{source} {pattern!r} allows nothing: a pattern is SERVER/TOOL, such as {one_line(meant, 100)!r}"


def _of_deny(label: str, pattern: str, tools: Tools) -> Iterator[str]:
    if "/" in pattern or pattern == EVERYTHING:
        yield from _of_pattern(label, pattern, tools)
    elif _are_known(tools.values()) and not any(any_name([pattern], own) for own in RESERVED):
        is_met = any(restricts(pattern, name, tool) for name, own in tools.items() for tool in own or ())
        if not is_met:
            yield f"{label} matches no tool: a pattern is SERVER/TOOL, or a tool's own name"


def _of_pattern(label: str, pattern: str, tools: Tools) -> Iterator[str]:
    meant = {name: own for name, own in tools.items() if names_server(pattern, name)}
    if not meant:
        if pattern != EVERYTHING:
            yield f"{label} matches nothing: there is no server {one_line(pattern.partition('/')[0], 60)!r}"
    elif pattern != EVERYTHING and _are_known(meant.values()):
        is_met = any(matches(pattern, name, tool) for name, own in meant.items() for tool in own or ())
        if not is_met:
            yield f"{label} matches no tool of {', '.join(repr(one_line(name, 60)) for name in meant)}"


def _of_names(label: str, patterns: Iterable[str], own: tuple[str, ...] | None) -> Iterator[str]:
    for pattern in patterns:
        if own is not None and pattern != EVERYTHING and not any(any_name([pattern], tool) for tool in own):
            yield f"{label}: {pattern!r} matches no tool of this server"


def _are_known(lists: Iterable[tuple[str, ...] | None]) -> bool:
    return all(own is not None for own in lists)
