"""The verdict of the user's rules on a call: patterns of tools, and the rules of a policy.

A matching deny rule wins, whatever its position; otherwise the first matching allow or ask rule decides. Restrictions
(deny, ask) match if an argument possibly fits, and allow rules only if it certainly fits: an ambiguous argument matches
a deny rule, and does not match an allow rule.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import Effect, Policy, PolicyRule
from dial_client.settings.tool_patterns import matches, matches_name, restricts
from dial_client.tools.argument_paths import find_current_folder, lies_within, may_reach
from dial_client.tools.catalog import READ_RESOURCE


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call that needs a decision."""

    spec: ToolSpec
    arguments: Mapping[str, Any] = field(default_factory=dict)
    settings: ServerSettings | None = None
    """The entry of the server; None for an in-process server."""
    taint: tuple[str, ...] = ()
    """The sources of untrusted content in the conversation."""

    @property
    def server(self) -> str:
        """The server that the call reaches; for the host's resource tools, the server in the arguments."""
        return self.spec.server or str(self.arguments.get("server", ""))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision by a rule: its effect, and its source."""

    effect: Effect
    decided_by: str
    """The source, for the audit log: ``policy rule 2 (servers.json)``, ``/approve time/*``, ``autoApprove of time``."""
    reason: str = ""
    """The reason that the user wrote in the rule."""
    though_tainted: bool = False
    """Whether the rule is for tainted conversations, so that untrusted content is no reason to ask."""


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """All rules that decide without the approver, apart from grants.

    Patterns match ``server/tool``, as in `settings.tool_patterns`. A deny pattern without ``/`` matches the own name of
    a tool at any server.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    auto_approve: Mapping[str, tuple[str, ...]] | None = None
    """The ``autoApprove`` patterns of each server's entry, which match the own names of the server's tools."""
    policy: Policy = ()
    typed: frozenset[str] = frozenset()
    """The patterns that were added by the commands ``/approve`` and ``/deny``."""

    def name_source(self, effect: Effect, pattern: str) -> str:
        """Return the option or command with which the user added a pattern, such as ``--allow`` or ``/deny``."""
        is_allowed = effect is Effect.ALLOW
        if pattern in self.typed:
            return "/approve" if is_allowed else "/deny"
        return "--allow" if is_allowed else "--deny"

    def denies(self, spec: ToolSpec) -> bool:
        """Return whether a deny pattern matches the tool, for any arguments."""
        return self._find_denial(spec) is not None

    def allows(self, spec: ToolSpec) -> bool:
        """Return whether ``autoApprove`` of the server's entry or an allow pattern matches the tool."""
        return self._find_permission(spec) is not None

    def find_verdict(self, call: ProposedCall) -> Verdict | None:
        """Return the verdict of the rules on a call; None if no rule matches."""
        spec = call.spec
        if (pattern := self._find_denial(spec)) is not None:
            return Verdict(Effect.DENY, f"{self.name_source(Effect.DENY, pattern)} {pattern}")
        matching = [rule for rule in self.policy if _is_about(rule, spec) and is_rule_met(rule, call)]
        denials = (rule for rule in matching if rule.effect is Effect.DENY)
        decisive = next(denials, None) or next(iter(matching), None)
        if decisive is not None:
            return Verdict(decisive.effect, f"policy {decisive.name}", decisive.reason, decisive.tainted is True)
        permission = self._find_permission(spec)
        return None if permission is None else Verdict(Effect.ALLOW, permission)

    def _find_denial(self, spec: ToolSpec) -> str | None:
        return next((pattern for pattern in self.deny if restricts(pattern, spec.server, spec.tool)), None)

    def _find_permission(self, spec: ToolSpec) -> str | None:
        """Return the source of a permission: an option, a command or the server's entry; None if there is none."""
        allowed = next((pattern for pattern in self.allow if matches(pattern, spec.server, spec.tool)), None)
        if allowed is not None:
            return f"{self.name_source(Effect.ALLOW, allowed)} {allowed}"
        configured = (self.auto_approve or {}).get(spec.server, ())
        return f"autoApprove of {spec.server}" if matches_name(configured, spec.tool) else None


def _is_about(rule: PolicyRule, spec: ToolSpec) -> bool:
    """Return whether rules apply to a tool: to servers' tools and, except for allow rules, to `read_resource`."""
    return bool(spec.server) or (spec.tool == READ_RESOURCE and rule.effect is not Effect.ALLOW)


def is_rule_met(rule: PolicyRule, call: ProposedCall) -> bool:
    """Return whether every condition of a rule is met by a call."""
    is_strict = rule.effect is Effect.ALLOW
    names = matches if is_strict else restricts
    if not any(names(pattern, call.server, call.spec.tool) for pattern in rule.tools):
        return False
    if rule.tainted is not None and rule.tainted != bool(call.taint):
        return False
    if rule.annotations and not _is_annotated(rule, call, is_strict=is_strict):
        return False
    holds = _certainly_holds if is_strict else _may_hold
    return holds(rule, call)


def _is_annotated(rule: PolicyRule, call: ProposedCall, *, is_strict: bool) -> bool:
    """Return whether the tool's hints match the rule. For untrusted servers MCP's default hints are used."""
    is_trusted = not call.spec.server or (call.settings is not None and call.settings.trusted)
    if is_strict and not is_trusted:
        return False
    hints = to_annotations(call.spec) if is_trusted else _DEFAULTS
    return all(hints[name] == value for name, value in rule.annotations.items())


_SEPARATORS = ",;\r\n"
_DEFAULTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
"""The defaults of a tool without hints (MCP 2025-06-18, schema, ``ToolAnnotations``)."""


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
    is_believed = call.settings is not None and call.settings.trusted
    if not call.spec.server:
        return call.spec.tool == READ_RESOURCE and not is_believed
    return not (is_believed and call.spec.read_only and call.spec.open_world is False)


def _certainly_holds(rule: PolicyRule, call: ProposedCall) -> bool:
    """Return whether every argument of the rule is present, and all its values certainly fit."""
    for name, globs in rule.arguments.items():
        values = _find_values(name, call.arguments)
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
        values = _find_values(name, call.arguments)
        texts = {
            form for value in values for text in (*_walk_texts(value), _to_json(value)) for form in (text, _fold(text))
        }
        if not any(_is_like(text, form) for glob in globs for form in (glob, _fold(glob)) for text in texts):
            return False
    roots = (root for root in (call.settings.roots or () if call.settings else ()) if not root.startswith("file:"))
    bases = (*_find_bases(call.settings), find_current_folder(), *roots)
    for name, folders in rule.paths.items():
        if not any(may_reach(value, folders, bases) for value in _find_values(name, call.arguments)):
            return False
    return True


def _find_values(name: str, arguments: Mapping[str, Any]) -> list[Any]:
    return [value for key, value in arguments.items() if key == name or fnmatchcase(key, name)]


def _walk_texts(value: Any) -> Iterator[str]:
    """Yield the texts within a value, including the names in objects; other types as JSON."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Mapping):
            pending += [*current, *current.values()]
        elif isinstance(current, list | tuple):
            pending += current
        else:
            yield current if isinstance(current, str) else _to_json(current)


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _is_like(text: str, glob: str) -> bool:
    return text == glob or fnmatchcase(text, glob)


def _is_certainly_like(text: str, glob: str) -> bool:
    """Return whether a text fits a glob, and is not a list that a server may split at separators."""
    return _is_like(text, glob) and (glob == "*" or not any(char in text and char not in glob for char in _SEPARATORS))


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _find_bases(settings: ServerSettings | None) -> tuple[str, ...]:
    """Return the folders that a server resolves relative paths against; empty for a URL, where they are unknown."""
    if settings is not None and settings.url is not None:
        return ()
    return ((settings.cwd if settings is not None else None) or find_current_folder(),)
