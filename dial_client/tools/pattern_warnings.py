"""Warnings about patterns that match nothing: a typing error would silently disable a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import Effect
from dial_client.settings.tool_patterns import EVERYTHING, matches, matches_name, names_server, restricts
from dial_client.tools.catalog import RESERVED
from dial_client.tools.policy import PolicyRules

Tools = Mapping[str, tuple[str, ...] | None]
"""The own names of each server's tools; None if they are not known yet."""


def check_patterns(
    rules: PolicyRules, tools: Tools, entries: Mapping[str, ServerSettings | None], *, all_servers: bool = False
) -> Iterator[str]:
    """Yield a line for each pattern that matches nothing.

    Args:
        rules: The rules, with their patterns.
        tools: The tools of all servers.
        entries: The servers' entries, with the patterns of ``autoApprove`` and ``untrusted``.
        all_servers: Whether to include policy patterns that name none of the servers. Such a pattern need not be an
            error: the policy may also be used with the servers of another project.
    """
    for pattern in rules.allow:
        yield from _check_allow_pattern(rules.name_source(Effect.ALLOW, pattern), pattern, tools)
    for pattern in rules.deny:
        yield from _check_deny_pattern(f"{rules.name_source(Effect.DENY, pattern)} {pattern!r}", pattern, tools)
    for rule in rules.policy:
        for pattern in rule.tools:
            if all_servers or any(names_server(pattern, name) for name in tools):
                check = _check_pattern if rule.effect is Effect.ALLOW else _check_deny_pattern
                yield from check(f"policy {rule.name}: {pattern!r}", pattern, tools)
    for name, entry in entries.items():
        if entry is not None:
            yield from _check_name_patterns(f"autoApprove of {name!r}", entry.auto_approve, tools[name])
            yield from _check_name_patterns(f"untrusted of {name!r}", entry.untrusted, tools[name])


def _check_allow_pattern(source: str, pattern: str, tools: Tools) -> Iterator[str]:
    if "/" in pattern or pattern == EVERYTHING:
        yield from _check_pattern(f"{source} {pattern!r}", pattern, tools)
        return
    server, _, tool_part = pattern.partition("__")
    servers = [name for name, names in tools.items() if any(restricts(pattern, name, tool) for tool in names or ())]
    known = f"{server}/{tool_part}" if tool_part and server in tools else ""
    suggestion = known or f"{servers[0] if servers else 'SERVER'}/{pattern}"
    yield f"{source} {pattern!r} allows nothing: a pattern is SERVER/TOOL, such as {to_one_line(suggestion, 100)!r}"


def _check_deny_pattern(label: str, pattern: str, tools: Tools) -> Iterator[str]:
    if "/" in pattern or pattern == EVERYTHING:
        yield from _check_pattern(label, pattern, tools)
    elif _are_known(tools.values()) and not any(matches_name([pattern], name) for name in RESERVED):
        is_met = any(restricts(pattern, name, tool) for name, names in tools.items() for tool in names or ())
        if not is_met:
            yield f"{label} matches no tool: a pattern is SERVER/TOOL, or a tool's own name"


def _check_pattern(label: str, pattern: str, tools: Tools) -> Iterator[str]:
    named_servers = {name: names for name, names in tools.items() if names_server(pattern, name)}
    if not named_servers:
        if pattern != EVERYTHING:
            yield f"{label} matches nothing: there is no server {to_one_line(pattern.partition('/')[0], 60)!r}"
    elif pattern != EVERYTHING and _are_known(named_servers.values()):
        is_met = any(matches(pattern, name, tool) for name, names in named_servers.items() for tool in names or ())
        if not is_met:
            yield f"{label} matches no tool of {', '.join(repr(to_one_line(name, 60)) for name in named_servers)}"


def _check_name_patterns(label: str, patterns: Iterable[str], names: tuple[str, ...] | None) -> Iterator[str]:
    for pattern in patterns:
        if names is not None and pattern != EVERYTHING and not any(matches_name([pattern], tool) for tool in names):
            yield f"{label}: {pattern!r} matches no tool of this server"


def _are_known(lists: Iterable[tuple[str, ...] | None]) -> bool:
    return all(names is not None for names in lists)
