"""The verdict of the user's rules on a call: patterns of tools, and the rules of a policy.

A matching deny rule wins, whatever its position; otherwise the first matching allow or ask rule decides. Restrictions
(deny, ask) match if an argument possibly fits, and allow rules only if it certainly fits: an ambiguous argument matches
a deny rule, and does not match an allow rule.

A pattern that matches nothing is reported (`check_patterns`): a typing error would silently disable a rule.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import (
    EVERYTHING,
    Effect,
    Policy,
    PolicyRule,
    matches,
    matches_name,
    names_server,
    restricts,
)
from dial_client.tools.argument_paths import find_current_folder, lies_within, may_reach, walk_values
from dial_client.tools.catalog import READ_RESOURCE, READ_SKILL, RESERVED

# The servers' own tool names, by server; None for a server whose tools are not known yet.
Tools = Mapping[str, tuple[str, ...] | None]


def find_called_server(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return the server that a call reaches, as `ProposedCall.server` does."""
    if not spec.server and spec.tool == READ_SKILL:
        server, slash, _ = str(arguments.get("name") or "").partition("/")
        return server if slash else ""
    return spec.server or str(arguments.get("server", ""))


# Neither this nor a verdict is frozen: one of each is made for each call, and nothing changes them.
@dataclass(slots=True)
class ProposedCall:
    """A call that needs a decision."""

    spec: ToolSpec
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: ServerSettings | None = None
    """The entry of the server; None for an in-process server."""
    taint: tuple[str, ...] = ()
    """The sources of untrusted content in the conversation."""
    reason: str = ""
    """Why a call of one of the host's own tools needs the user's consent; empty for no reason of its own."""

    @property
    def server(self) -> str:
        """The server that the call reaches; for the host's tools for resources and skills, that in the arguments."""
        return find_called_server(self.spec, self.arguments)


@dataclass(slots=True)
class Verdict:
    """A decision by a rule: its effect, and its source."""

    effect: Effect
    decided_by: str
    """The source, for the audit log: ``policy rule 2 (servers.json)``, ``/approve time/*``, ``autoApprove of time``."""
    reason: str = ""
    """The reason that the user wrote in the rule."""
    allows_tainted: bool = False
    """Whether the rule is for tainted conversations, so that untrusted content is no reason to ask."""
    is_read_only: bool = False
    """Whether the rule says that the calls it allows only read."""


@dataclass(frozen=True, eq=False, slots=True)
class PolicyRules:
    """All rules that decide without the approver, apart from grants; a server's entry adds its ``autoApprove``.

    Patterns match ``server/tool``, as in `settings.policy_config`. A deny pattern without ``/`` matches the own name of
    a tool at any server.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    policy: Policy = ()
    typed: frozenset[str] = frozenset()
    """The patterns that were added by the commands ``/approve`` and ``/deny``."""
    prefix: str = ""
    """What precedes the names of the patterns ``allow`` and ``deny``: ``--`` if they are options of a command."""

    def name_source(self, effect: Effect, pattern: str) -> str:
        """Return the argument, option or command that added a pattern, such as ``deny``, ``--allow`` or ``/deny``."""
        is_allowed = effect is Effect.ALLOW
        if pattern in self.typed:
            return "/approve" if is_allowed else "/deny"
        return f"{self.prefix}{'allow' if is_allowed else 'deny'}"

    def find_verdict(self, call: ProposedCall) -> Verdict | None:
        """Return the verdict of the rules on a call; None if no rule matches."""
        spec = call.spec
        # Deny first: no policy rule, option or `autoApprove` can allow what the user has denied.
        denied = _find_pattern(self.deny, restricts, spec)
        if denied is not None:
            return Verdict(Effect.DENY, f"{self.name_source(Effect.DENY, denied)} {denied}")
        # Rules apply to servers' tools. Of the host's own, `list_resources` shows names only, and `read_resource` runs
        # without approval, so that only restrictions matter for it.
        matching = [
            rule
            for rule in self.policy
            if (spec.server or (spec.tool == READ_RESOURCE and rule.effect is not Effect.ALLOW))
            and is_rule_met(rule, call)
        ]
        # A deny rule wins wherever it stands, so that a rule placed before it by mistake opens nothing.
        if matching:
            decisive = next((rule for rule in matching if rule.effect is Effect.DENY), matching[0])
            return Verdict(
                decisive.effect,
                f"policy {decisive.name}",
                decisive.reason,
                decisive.tainted is True,
                decisive.read_only,
            )
        # `autoApprove` and `--allow` come last: a policy can restrict what the servers' entries allow.
        allowed = _find_pattern(self.allow, matches, spec)
        if allowed is not None:
            return Verdict(Effect.ALLOW, f"{self.name_source(Effect.ALLOW, allowed)} {allowed}")
        # The settings of a call of the host's own tool are those of the server that it reads from.
        is_configured = call.settings is not None and matches_name(call.settings.auto_approve, spec.tool)
        return Verdict(Effect.ALLOW, f"autoApprove of {spec.server}") if spec.server and is_configured else None


def _find_pattern(patterns: tuple[str, ...], names: Callable[[str, str, str], bool], spec: ToolSpec) -> str | None:
    """Return the first pattern that names a tool, as `names` tells; None for none."""
    for pattern in patterns:
        if names(pattern, spec.server, spec.tool):
            return pattern
    return None


def is_rule_met(rule: PolicyRule, call: ProposedCall) -> bool:
    """Return whether every condition of a rule is met by a call."""
    # An allow rule has to be certain, a restriction must not be evaded: each condition has two forms.
    is_strict = rule.effect is Effect.ALLOW
    names = matches if is_strict else restricts
    if not any(names(pattern, call.server, call.spec.tool) for pattern in rule.tools):
        return False
    if rule.tainted is not None and rule.tainted != bool(call.taint):
        return False
    if rule.annotations and not _is_annotated(rule, call, is_strict=is_strict):
        return False
    return _certainly_holds(rule, call) if is_strict else _may_hold(rule, call)


def _is_annotated(rule: PolicyRule, call: ProposedCall, *, is_strict: bool) -> bool:
    """Return whether the tool's hints match the rule. For untrusted servers MCP's default hints are used."""
    # Annotations are claims of the server (MCP: they MUST be treated as untrusted): a server that lies about
    # `readOnlyHint` must neither match an allow rule nor escape a restriction.
    is_trusted = not call.spec.server or (call.settings is not None and call.settings.trusted)
    if is_strict and not is_trusted:
        return False
    hints = to_annotations(call.spec) if is_trusted else _DEFAULTS
    return all(hints[name] == value for name, value in rule.annotations.items())


_SEPARATORS = ",;\r\n"
# The defaults of a tool without hints (MCP 2025-06-18, schema, ``ToolAnnotations``).
_DEFAULTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


def to_annotations(spec: ToolSpec) -> dict[str, bool]:
    """Return the hints of a tool, with MCP's defaults for missing hints."""
    return {
        "readOnlyHint": spec.read_only,
        "destructiveHint": spec.destructive is not False and not spec.read_only,
        "idempotentHint": spec.idempotent,
        "openWorldHint": spec.open_world is not False,
    }


def can_act_or_send(call: ProposedCall) -> bool:
    """Return whether a call may change data or send data to another system.

    Only a tool of a trusted server that declares ``readOnlyHint`` true and ``openWorldHint`` false does neither: MCP's
    default is an open world, and a request to the web sends data to the web. Of the host's own tools, `read_resource`
    may send data, in the URI that the model writes.
    """
    # The hints of a server that the user has not marked as trusted are not believed.
    is_believed = call.settings is not None and call.settings.trusted
    if not call.spec.server:
        return call.spec.tool == READ_RESOURCE and not is_believed
    return not (is_believed and call.spec.read_only and call.spec.open_world is False)


def _certainly_holds(rule: PolicyRule, call: ProposedCall) -> bool:
    """Return whether every argument of the rule is present, and all its values certainly fit."""
    for name, globs in rule.arguments.items():
        values = _find_values(name, call.arguments)
        # A missing argument gets the server's default, which the rule does not know.
        texts = [text for value in values for text in _walk_texts(value)]
        if not texts or not all(any(_is_certainly_like(text, glob) for glob in globs) for text in texts):
            return False
    bases = _find_bases(call.settings)
    for name, folders in rule.paths.items():
        values = _find_values(name, call.arguments)
        if not values or not all(lies_within(value, folders, bases) for value in values):
            return False
    return True


def _may_hold(rule: PolicyRule, call: ProposedCall) -> bool:
    """Return whether some value of each argument of the rule fits, or can be interpreted as a value that fits."""
    for name, globs in rule.arguments.items():
        # A server may read each text within a value, or all of it as JSON.
        values = _find_values(name, call.arguments)
        texts = {text for value in values for text in (*_walk_texts(value), _to_json(value))}
        readings = texts | {_fold(text) for text in texts}
        # The glob is compared folded too: `DROP*` restricts `drop table`, as for a server that ignores case.
        forms = {form for glob in globs for form in (glob, _fold(glob))}
        if not any(_is_like(text, form) for form in forms for text in readings):
            return False
    # The server may run in its own folder, in the host's, or in one of its roots (a root that is a URI is no base).
    roots = (root for root in (call.settings.roots or () if call.settings else ()) if not root.startswith("file:"))
    bases = (*_find_bases(call.settings), find_current_folder(), *roots)
    for name, folders in rule.paths.items():
        if not any(may_reach(value, folders, bases) for value in _find_values(name, call.arguments)):
            return False
    return True


def _find_values(name: str, arguments: Mapping[str, Any]) -> list[Any]:
    """Return the values of the arguments whose names match; ``*`` as a name matches all arguments."""
    return [value for key, value in arguments.items() if key == name or fnmatchcase(key, name)]


def _walk_texts(value: Any) -> Iterator[str]:
    """Yield the texts within a value, including the names in objects; other types as JSON."""
    return map(_to_json, walk_values(value))


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _is_like(text: str, glob: str) -> bool:
    return text == glob or fnmatchcase(text, glob)


def _is_certainly_like(text: str, glob: str) -> bool:
    """Return whether a text fits a glob, and is not a list that a server may split at separators."""
    # `*@example.org` fits "eve@evil.org,bob@example.org", of which a mail server makes two recipients.
    return _is_like(text, glob) and (glob == "*" or not any(char in text and char not in glob for char in _SEPARATORS))


def _fold(text: str) -> str:
    """Return a text without differences of case and of compatible characters (full-width letters, ligatures)."""
    return unicodedata.normalize("NFKC", text).casefold()


def _find_bases(settings: ServerSettings | None) -> tuple[str, ...]:
    """Return the folders that a server resolves relative paths against; empty for a URL, where they are unknown."""
    if settings is not None and settings.url is not None:
        return ()
    return ((settings.cwd if settings is not None else None) or find_current_folder(),)


def check_patterns(
    rules: PolicyRules,
    tools: Tools,
    entries: Mapping[str, ServerSettings | None],
    *,
    agents: Mapping[str, Iterable[str]] | None = None,
    all_servers: bool = False,
) -> Iterator[str]:
    """Yield a line for each pattern that matches nothing.

    Args:
        rules: The rules, with their patterns.
        tools: The tools of all servers.
        entries: The servers' entries, with the patterns of ``autoApprove`` and ``untrusted``.
        agents: The patterns of the tools of agents, by the agents' names.
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
    for agent, patterns in (agents or {}).items():
        yield from _check_agent_patterns(agent, patterns, tools)
    for name, entry in entries.items():
        if entry is not None:
            yield from _check_name_patterns(f"autoApprove of {name!r}", entry.auto_approve, tools[name])
            yield from _check_name_patterns(f"untrusted of {name!r}", entry.untrusted, tools[name])


def _check_agent_patterns(agent: str, patterns: Iterable[str], tools: Tools) -> Iterator[str]:
    # One that names none of the servers is no error: an agent may also be used with those of another project, and its
    # file may be that of another host, with the tools of that host.
    for pattern in (pattern.removeprefix("!") for pattern in patterns):
        if "/" in pattern and any(names_server(pattern, name) for name in tools):
            yield from _check_pattern(f"agent {agent}: {pattern!r}", pattern, tools)


def _check_allow_pattern(source: str, pattern: str, tools: Tools) -> Iterator[str]:
    if "/" in pattern or pattern == EVERYTHING:
        yield from _check_pattern(f"{source} {pattern!r}", pattern, tools)
        return
    server, _, tool_part = pattern.partition("__")
    servers = _find_servers(restricts, pattern, tools)
    known = f"{server}/{tool_part}" if tool_part and server in tools else ""
    suggestion = known or f"{servers[0] if servers else 'SERVER'}/{pattern}"
    yield f"{source} {pattern!r} allows nothing: a pattern is SERVER/TOOL, such as {to_one_line(suggestion, 100)!r}"


def _check_deny_pattern(label: str, pattern: str, tools: Tools) -> Iterator[str]:
    if "/" in pattern or pattern == EVERYTHING:
        yield from _check_pattern(label, pattern, tools)
        return
    is_known = None not in tools.values() and not any(matches_name([pattern], name) for name in RESERVED)
    if is_known and not _find_servers(restricts, pattern, tools):
        yield f"{label} matches no tool: a pattern is SERVER/TOOL, or a tool's own name"


def _check_pattern(label: str, pattern: str, tools: Tools) -> Iterator[str]:
    if pattern == EVERYTHING:
        return
    named_servers = {name: names for name, names in tools.items() if names_server(pattern, name)}
    if not named_servers:
        yield f"{label} matches nothing: there is no server {to_one_line(pattern.partition('/')[0], 60)!r}"
    elif None not in named_servers.values() and not _find_servers(matches, pattern, named_servers):
        yield f"{label} matches no tool of {', '.join(repr(to_one_line(name, 60)) for name in named_servers)}"


def _find_servers(is_match: Callable[[str, str, str], bool], pattern: str, tools: Tools) -> list[str]:
    """Return the servers that have a tool that a pattern matches."""
    return [name for name, names in tools.items() if any(is_match(pattern, name, tool) for tool in names or ())]


def _check_name_patterns(label: str, patterns: Iterable[str], names: tuple[str, ...] | None) -> Iterator[str]:
    for pattern in patterns:
        if names is not None and pattern != EVERYTHING and not any(matches_name([pattern], tool) for tool in names):
            yield f"{label}: {pattern!r} matches no tool of this server"
