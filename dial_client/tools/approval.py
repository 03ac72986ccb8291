"""Which calls may run: a deny always wins, then what is allowed, then the approver is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import anyio

from dial_client.audit.entries import Origin
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.status import ServerState
from dial_client.servers.tool_pins import ToolPins
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import Effect, Policy
from dial_client.settings.tool_patterns import matches
from dial_client.tools import pattern_warnings
from dial_client.tools.function_tools import FunctionTools
from dial_client.tools.grants import Grant, GrantStore
from dial_client.tools.policy import PolicyRules, ProposedCall, Verdict, can_act_or_send
from dial_client.tools.session_grants import GRANT, SessionGrants
from dial_client.tools.taint import describe_sources

__all__ = [
    "NO_APPROVER",
    "THE_USER",
    "Approval",
    "ApprovalChecker",
    "ApprovalContext",
    "Approver",
    "Decision",
    "PolicyRules",
]

log = get_logger(__name__)


class Decision(StrEnum):
    """The decisions of an approver."""

    ONCE = "once"
    """Allow this call."""
    SESSION = "session"
    """Allow this tool until the client is closed."""
    ALWAYS = "always"
    """Allow this tool in later runs too, until it changes or the grant is revoked; without a folder for grants the same
    as `SESSION`."""
    DENY = "deny"
    """Deny this call."""


@dataclass(frozen=True, slots=True)
class Approval:
    """An approver's answer: ``Approval("once")``, ``Approval("deny", "a reason the model is told")``.

    Raises:
        ValueError: the decision is none of once, session, always, deny.
    """

    decision: Decision | str
    reason: str = ""
    decided_by: str = field(default="", compare=False)
    """The source of the decision, for a record: ``policy rule 3 (servers.json)``, ``autoApprove of time``,
    ``--allow time/*``, ``the user``, ``grant …``, ``no approver``; an approver may leave it empty for the user."""
    arguments: Mapping[str, Any] | None = None
    """Arguments to call the tool with, in place of the model's; None to leave them. They are checked against the
    schema and the rules like the model's, and the model is told of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decision", Decision(self.decision))

    @property
    def allowed(self) -> bool:
        """True if the call may run."""
        return self.decision is not Decision.DENY


THE_USER, NO_APPROVER = "the user", "no approver"
"""Sources of a decision: a person, or the lack of an approver."""
_FORBIDDEN = "a rule of the user forbids this tool"


@dataclass(frozen=True, slots=True)
class ApprovalContext:
    """The circumstances of a call that needs approval."""

    server: str
    """The server the call reaches, by its name in the configuration."""
    change: str = ""
    """The difference between the tool and the definition that was approved, as the lines of a diff; empty for none."""
    why_asked: str = ""
    """The reason to ask whatever allows the call: a rule, or untrusted content; empty for none. An approval then holds
    for this very call only."""
    turn_id: str = ""
    """The turn that makes the call; empty for a call outside of any."""
    conversation_id: str = ""
    """The conversation of the turn; empty for none."""


Approver = Callable[[ToolCallRequest, ToolSpec, ApprovalContext], Awaitable[Approval]]
"""Decides about a call of a tool. It is asked about one call at a time, unless `ApprovalPolicy.concurrent` is set.

The turn's time limit does not count the wait for its answer. If the turn is cancelled, so is the approver.
"""


class ApprovalChecker:
    """The one place every call passes before it runs.

    A grant holds for the tool as it was at that time: the approver is asked again about a tool that has another
    description or takes other arguments.

    A deny wins over everything. A policy's ask, and untrusted content in the conversation, lead to a question whatever
    else would allow the call; the answer then holds for this very call only, also if it is given for longer.

    Args:
        rules: decide without asking.
        approve: is asked about calls that no rule decides; None allows them, and denies calls that have to be asked
            about.
        pins: definitions that were approved in earlier runs; None for none. The approver is asked about a tool that
            differs from its pin, whatever the rules allow; without an approver it is denied.
        entries: how each server is reached: paths and annotations are judged by that.
        grants: tools that are allowed in later runs too; None where no grants are kept.
        concurrent: the approver may be asked about several calls at the same time.
    """

    def __init__(
        self,
        rules: PolicyRules,
        approve: Approver | None,
        pins: ToolPins | None = None,
        entries: Mapping[str, Any] | None = None,
        grants: GrantStore | None = None,
        *,
        concurrent: bool = False,
    ) -> None:
        self.rules = rules
        """The rules that decide without asking."""
        self._approve = approve
        self._pins = pins
        self._entries = {} if entries is None else entries
        self._grants = grants
        self._session = SessionGrants()
        self._question: AbstractAsyncContextManager[None] = nullcontext() if concurrent else anyio.Lock()

    def decide(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        taint: tuple[str, ...] = (),
        change: str = "",
    ) -> Approval | None:
        """Return the decision about a call; None if the approver has to be asked.

        Args:
            spec: the tool.
            arguments: those of the call, as they are sent.
            taint: the sources of untrusted content that the model had read when it asked for the call.
            change: the difference between the tool and the same tool when this call was decided about before.
        """
        call = self._propose(spec, arguments, taint)
        verdict = self.rules.verdict(call)
        if verdict is not None and verdict.effect is Effect.DENY:
            return Approval(Decision.DENY, verdict.reason or _FORBIDDEN, verdict.decided_by)
        why = find_reason_to_ask(call, verdict)
        if not spec.server and not why:  # the host's own read what the conversation has already seen, and touch nothing
            return Approval(Decision.ONCE, decided_by="the host's own tool")
        if why and self._approve is None:
            return Approval(Decision.DENY, f"{why}, and nobody is there to be asked", NO_APPROVER)
        decided_by = self._find_call_grant(call) if why else self._find_permission(call, verdict)
        if not decided_by:
            return None
        if self._change(spec) or change:
            return None if self._approve is not None else _deny_changed(spec)
        if self._pins is not None:
            self._pins.pin(spec)
        return Approval(Decision.ONCE, decided_by=decided_by)

    async def ask(
        self,
        call: ToolCallRequest,
        spec: ToolSpec,
        taint: tuple[str, ...] = (),
        change: str = "",
        origin: Origin | None = None,
    ) -> Approval:
        """Ask the approver, unless the decision is known by now; an approver that fails denies the call.

        Args:
            call: the call.
            spec: as for `decide`.
            taint: as for `decide`.
            change: as for `decide`.
            origin: the turn that makes the call; None for a call outside of any.
        """
        async with self._question:
            if (known := self.decide(spec, call.arguments, taint, change)) is not None:
                return known
            proposed = self._propose(spec, call.arguments, taint)
            context = self._context(proposed, change, origin or Origin())
            answer = await self._ask_approver(call, spec, context)
            if answer.allowed and self._pins is not None:
                self._pins.pin(spec)
        if answer.arguments is not None:
            proposed = self._propose(spec, answer.arguments, taint)
        self._remember(answer, proposed, for_call_only=bool(context.why_asked))
        return answer if answer.decided_by else replace(answer, decided_by=THE_USER)

    def decide_changed(self, spec: ToolSpec, approval: Approval, taint: tuple[str, ...] = ()) -> Approval:
        """Return the decision about a call whose arguments the approver has changed: a rule may deny the new ones."""
        if not approval.allowed or approval.arguments is None:
            return approval
        verdict = self.rules.verdict(self._propose(spec, approval.arguments, taint))
        if verdict is None or verdict.effect is not Effect.DENY:
            return approval
        return Approval(Decision.DENY, verdict.reason or _FORBIDDEN, verdict.decided_by)

    def forget(self, server: str, tool: str | None = None) -> None:
        """Drop the session's grants of a server's tools, or of one tool: another server may have its name next."""
        if tool is None:
            self._session.drop_server(server)
        else:
            self._session.drop_tool(server, tool)

    def add_rule(self, effect: Effect, pattern: str) -> None:
        """Allow or deny the tools that a pattern names, as the options of the client do, until the client is closed."""
        allow = tuple(known for known in self.rules.allow if known != pattern)
        deny = tuple(known for known in self.rules.deny if known != pattern)
        if effect is Effect.ALLOW:
            allow = (*allow, pattern)
        else:
            deny = (*deny, pattern)
        self.rules = replace(self.rules, allow=allow, deny=deny, typed=self.rules.typed | {pattern})

    def set_policy(self, policy: Policy) -> None:
        """Decide by these rules of a policy from now on."""
        self.rules = replace(self.rules, policy=policy)

    @property
    def session_grants(self) -> tuple[tuple[str, str], ...]:
        """Server and tool of each tool that is allowed until the client is closed."""
        return self._session.tools

    @property
    def stored_grants(self) -> tuple[Grant, ...]:
        """The tools that are allowed in later runs too."""
        return self._grants.all() if self._grants is not None else ()

    def revoke(self, which: str) -> tuple[str, ...]:
        """Revoke rules by their pattern, and grants by their id, their tool or a pattern of tools; return their names.

        Also what the options of the client allow or deny is revoked, if `which` is that very pattern.
        """
        revoked = [pattern for pattern in (*self.rules.allow, *self.rules.deny) if pattern == which]
        allow, deny = (tuple(p for p in rules if p != which) for rules in (self.rules.allow, self.rules.deny))
        self.rules = replace(self.rules, allow=allow, deny=deny)
        for server, tool in self._session.tools:
            if matches(which, server, tool):
                self._session.drop_tool(server, tool)
                revoked.append(f"{server}/{tool}")
        named = {
            grant.id for grant in self.stored_grants if grant.id == which or matches(which, grant.server, grant.tool)
        }
        if self._grants is not None and named:
            revoked += [f"{grant.server}/{grant.tool}" for grant in self._grants.revoke(named)]
        return tuple(dict.fromkeys(revoked))

    def notes(self, servers: Mapping[str, Connection], functions: FunctionTools | None = None) -> tuple[str, ...]:
        """Return a line for each pattern that matches none of these servers' tools and functions."""
        tools = {
            name: tuple(tool.name for tool in server.tools) if server.status.state is ServerState.READY else None
            for name, server in servers.items()
        }
        if functions is not None and functions.tools:
            tools[functions.name] = tuple(tool.name for tool in functions.tools)
        settings = {name: server.settings for name, server in servers.items()}
        return tuple(pattern_warnings.notes(self.rules, tools, settings))

    def _propose(self, spec: ToolSpec, arguments: Mapping[str, Any], taint: tuple[str, ...]) -> ProposedCall:
        entry = self._entries.get(ProposedCall(spec, arguments).server)
        return ProposedCall(spec, arguments, entry if isinstance(entry, ServerSettings) else None, taint)

    def _context(self, call: ProposedCall, change: str, origin: Origin) -> ApprovalContext:
        change = self._change(call.spec) or change or self._change_since_grant(call)
        why = find_reason_to_ask(call, self.rules.verdict(call))
        return ApprovalContext(call.server, change, why, origin.turn, origin.conversation)

    async def _ask_approver(self, call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        """Return the approver's answer; a denial that says why, if it fails, or is no answer."""
        assert self._approve is not None
        try:
            # Nobody has checked the answer of the embedding program: it may be of any type.
            answer: object = self._approve(call, spec, context)
            if isinstance(answer, Awaitable):
                answer = await answer
            else:
                log.warning("approver_failed", tool=spec.name, is_async=False)
                return _deny_unasked("the approver is no `async def` function")
        except Exception as error:  # noqa: BLE001 - whatever the embedding program's approver raises: it fails closed
            log.warning("approver_failed", tool=spec.name, error=type(error).__name__)
            return _deny_unasked(f"the approver raised {type(error).__name__}")
        if not isinstance(answer, Approval):
            log.warning("approver_failed", tool=spec.name, answer=type(answer).__name__)
            return _deny_unasked(f"the approver returned {type(answer).__name__} in place of an Approval")
        return answer

    def _remember(self, answer: Approval, call: ProposedCall, *, for_call_only: bool) -> None:
        if answer.allowed:
            self._session.drop_changed(call.spec)
            if self._grants is not None and call.settings is not None and self._change_since_grant(call):
                self._grants.drop(call.settings, call.spec.tool)
        if answer.decision not in (Decision.SESSION, Decision.ALWAYS):
            return
        if for_call_only:
            self._session.allow_call(call)
        elif answer.decision is Decision.SESSION or not self._store_grant(call):
            self._session.allow_tool(call.spec)

    def _store_grant(self, call: ProposedCall) -> bool:
        """Store a grant for later runs; return False where that is not possible."""
        return self._grants is not None and call.settings is not None and self._grants.add(call.settings, call.spec)

    def _find_permission(self, call: ProposedCall, verdict: Verdict | None) -> str:
        """Return the source of a permission; empty if the approver has to decide."""
        if verdict is not None:
            return verdict.decided_by
        if self._session.allows_tool(call.spec):
            return GRANT
        if self._grants is not None and call.settings is not None:
            grant = self._grants.find(call.settings, call.spec)
            if grant is not None:
                return f"grant {grant.id}"
        return self._find_call_grant(call) or ("" if self._approve is not None else NO_APPROVER)

    def _find_call_grant(self, call: ProposedCall) -> str:
        """Return the source of an earlier permission for this very call; empty for none."""
        return GRANT if self._session.allows_call(call) else ""

    def _change_since_grant(self, call: ProposedCall) -> str:
        """Return the difference between a tool and its stored grant; empty for none."""
        if self._grants is None or call.settings is None:
            return ""
        return self._grants.change(call.settings, call.spec)

    def _change(self, spec: ToolSpec) -> str:
        """Return the difference between a tool and the definition that was approved, in this run or before."""
        return (self._pins.change(spec) if self._pins is not None else "") or self._session.change(spec)


def find_reason_to_ask(call: ProposedCall, verdict: Verdict | None) -> str:
    """Return why the approver has to be asked, whatever else allows the call; empty if there is no reason."""
    reasons = []
    if verdict is not None and verdict.effect is Effect.ASK:
        reasons.append(f"{verdict.decided_by} asks{f': {verdict.reason}' if verdict.reason else ''}")
    is_meant = verdict is not None and verdict.effect is Effect.ALLOW and verdict.though_tainted
    if call.taint and can_act_or_send(call) and not is_meant:
        reasons.append(f"the conversation holds {describe_sources(call.taint)}, and this tool can act or send")
    return "; ".join(reasons)


def _deny_unasked(problem: str) -> Approval:
    return Approval(Decision.DENY, f"permission could not be asked for, because {problem}", NO_APPROVER)


def _deny_changed(spec: ToolSpec) -> Approval:
    log.warning("tool_changed", server=spec.server, tool=spec.tool)
    reason = (
        f"{spec.server!r} describes its tool {spec.tool!r} otherwise than when it was approved, "
        "and nobody is there to be asked about it"
    )
    return Approval(Decision.DENY, reason, "changed definition")
