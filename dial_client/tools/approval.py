"""The approval of tool calls: a deny always wins, then rules and grants allow calls, then the approver is asked."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import anyio

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import (
    Message,
    PendingApproval,
    ToolCallRequest,
    ToolSpec,
    find_pending_approvals,
    find_waiting_calls,
)
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.servers.server_cache import ToolPins, build_definition, compare_definitions
from dial_client.servers.status import ServerState
from dial_client.settings.argument_types import describe_type
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import Effect, Policy, matches
from dial_client.tools.approval_mode import DECIDED_BY, PLAN_FIRST, ApprovalMode, may_run, must_wait_for_plan
from dial_client.tools.catalog import ToolServer
from dial_client.tools.grants import Grant, GrantStore
from dial_client.tools.policy import (
    PolicyRules,
    ProposedCall,
    Verdict,
    can_act_or_send,
    check_patterns,
    find_called_server,
)
from dial_client.tools.taint import describe_sources

log = get_logger(__name__)


class Decision(StrEnum):
    """The decisions of an approver."""

    ONCE = "once"
    """Allow this call."""
    SESSION = "session"
    """Allow this tool to the owner of the turn until the client is closed; without an owner in its conversation,
    without a conversation in this turn. With `ApprovalPolicy.single_user`: everywhere."""
    ALWAYS = "always"
    """Allow this tool to the owner of the turn in later runs too, until it changes or the grant is revoked. The same as
    `SESSION` if grants are not stored, or if nobody is known who could have given one."""
    DENY = "deny"
    """Deny this call."""
    DEFER = "defer"
    """Decide later: the call does not run, and the turn ends. `DialClient.resume` continues it with the decision."""


@dataclass(frozen=True, slots=True)
class Approval:
    """An approver's answer: ``Approval("once")``, ``Approval("deny", "a reason that the model reads")``.

    Raises:
        ValueError: The decision is not one of once, session, always, deny, defer.
    """

    decision: Decision | str
    reason: str = ""
    decided_by: str = field(default="", compare=False)
    """The source of the decision, for the audit log: ``policy rule 3 (servers.json)``, ``autoApprove of time``,
    ``allow time/*``, ``the user``, ``grant …``, ``no approver``. An empty text of an approver means the user."""
    arguments: Mapping[str, Any] | None = None
    """Arguments that replace the model's; None to keep the model's arguments. They are validated by the schema and the
    rules in the same way, and the model reads a note about them."""

    def __post_init__(self) -> None:
        if not isinstance(self.decision, Decision):
            object.__setattr__(self, "decision", Decision(self.decision))

    @property
    def allowed(self) -> bool:
        """True if the call may run."""
        return self.decision not in (Decision.DENY, Decision.DEFER)


@dataclass(frozen=True, slots=True)
class FailedApproval(Approval):
    """The denial of a call whose approver failed."""

    problem: str = ""
    """What the approver did: ``the approver raised KeyError``."""
    exception: Exception | None = field(default=None, compare=False, repr=False)
    """The exception of the approver; None if it returned a wrong value."""


# Sources of a decision: the user, or the lack of an approver.
THE_USER, NO_APPROVER = "the user", "no approver"
_SESSION_GRANT = "grant for the session"
_CHANGED_MEANWHILE = "the tool, or the arguments of the call, has changed since the approval was requested"
_FORBIDDEN = "a rule of the user forbids this tool"


@dataclass(frozen=True, eq=False, slots=True)
class ApprovalContext:
    """The circumstances of a call that needs approval."""

    server: str
    """The name in the configuration of the server that the call reaches."""
    change: str = ""
    """The difference between the tool's approved and its current definition, as lines of a diff; empty if equal."""
    why_asked: str = ""
    """The reason why the approver is asked although the call may be allowed otherwise: a policy's ask rule, or
    untrusted content. If set, an approval is valid only for calls with the same tool and arguments."""
    turn_id: str = ""
    """The id of the turn that makes the call; empty for a call outside of a turn."""
    conversation_id: str = ""
    """The id of the turn's conversation; empty if it has none."""
    approval_id: str = ""
    """The id of the question (`PendingApproval.id`), which stays the same if another program asks it again; empty for
    a request that is no tool call."""
    owner: str = ""
    """The person that the turn is for (keyword ``owner``); empty if the program does not name one."""
    agent: str = ""
    """The path of the agent that makes the call, ``main > reviewer``; empty for the turn itself."""
    agent_calls: tuple[str, ...] = ()
    """The ids of the calls of the agents on this path, the outermost first: agents of one name may run in parallel."""


Answer = Approval | Decision | str | bool
"""An answer about one call: an approval; one of the decisions alone; True for ``"once"``, False for ``"deny"``."""

Approver = Callable[[ToolCallRequest, ToolSpec, ApprovalContext], Awaitable[Answer]]
"""Approves or denies a tool call. It is asked about one call at a time, unless `ApprovalPolicy.concurrent` is set.

The timeout of the turn pauses while the approver decides. If the turn is cancelled, the approver is cancelled too.
"""


Decisions = Mapping[str, Answer]
"""Answers about calls that wait for approval, by `PendingApproval.id`."""


def read_answer(answer: object) -> Approval:
    """Return an answer of the embedding program, which may be of any type, as an approval.

    Raises:
        ValueError: The answer decides nothing.
    """
    if isinstance(answer, bool):
        return Approval(Decision.ONCE if answer else Decision.DENY)
    if isinstance(answer, str) and answer in {*Decision}:
        return Approval(answer)
    if isinstance(answer, Approval):
        return answer
    shown = repr(answer) if answer is None or isinstance(answer, str) else describe_type(answer)
    raise ValueError(f'{shown}: expected Approval("once"), Approval("deny", "the reason"), True or False')


def match_decisions(
    messages: Sequence[Message], decisions: Decisions
) -> dict[str, tuple[PendingApproval, Approval | None]]:
    """Return what is asked about each call that waits at the end of a history, and the answer, by the call's id.

    Raises:
        ConfigError: There is no approval with the id of a decision.
        ValueError: An answer decides nothing.
    """
    answers = {id_: read_answer(decision) for id_, decision in decisions.items()}
    if unknown := sorted(answers.keys() - {asked.id for asked in find_pending_approvals(messages)}):
        raise ConfigError(f"no call waits for the approval {unknown[0]!r}")
    # The decisions about the calls of an agent are for its turn (`AgentProgress.decisions`).
    return {asked.waiting_id: (asked, answers.get(asked.id)) for asked in find_waiting_calls(messages)}


# The most grants for the session; a dropped grant only means that the approver is asked again.
MAX_SESSION_GRANTS = 10_000
# The party of a grant, and the server and the own name of its tool.
_GrantKey = tuple[tuple[str, str], str, str]


@dataclass(eq=False, slots=True)
class _SessionGrant:
    """What a party has granted of one tool until the client is closed."""

    definition: str = ""
    """The granted definition of the tool; empty if only single calls are granted."""
    calls: set[str] = field(default_factory=set)
    """The digests of the calls that were granted one by one."""

    def find_call(self, call: ProposedCall) -> str:
        """Return the source of a grant of the same tool with the same arguments; empty if there is no such grant."""
        return _SESSION_GRANT if _compute_digest(call) in self.calls else ""


@dataclass(slots=True, eq=False)
class ApprovalChecker:
    """Approves or denies every call before it runs.

    A grant is valid for the tool's definition at that time: if the tool's description or parameters change, the
    approver is asked again.

    A deny rule always wins. For a policy's ask rule, and for untrusted content in the conversation, the approver is
    asked even if a rule or a grant would allow the call. Its answer is then valid only for calls with the same tool and
    arguments, even if the answer is `SESSION` or `ALWAYS`.

    """

    rules: PolicyRules
    """The rules that decide without the approver."""
    approve: Approver | None
    """Is asked about calls that no rule decides. If None, these calls are allowed, and calls that need an answer are
    denied."""
    pins: ToolPins | None = None
    """Tool definitions that were approved in earlier runs; None if there are no pins. If a tool differs from its pin,
    the approver is asked, whatever the rules allow; without an approver the call is denied."""
    entries: Mapping[str, Any] = field(default_factory=dict)
    """The servers' entries, by which paths and annotations are judged."""
    grants: GrantStore | None = None
    """The tools that are allowed in later runs too; None if grants are not stored."""
    question_lock: AbstractAsyncContextManager[None] = field(default_factory=anyio.Lock, kw_only=True)
    """Held while the approver is asked; a `nullcontext` if it may be asked about several calls at the same time."""
    agent_patterns: Mapping[str, Iterable[str]] = field(default_factory=dict, kw_only=True)
    """The patterns of the tools of agents, by the agents' names, for warnings alone."""
    find_host_reason: Callable[[ToolSpec, Mapping[str, Any]], str] = field(default=lambda _, __: "", kw_only=True)
    """Returns why a call of one of the host's own tools needs the user's consent; empty for no reason."""
    single_user: bool = field(default=False, kw_only=True)
    """True if one person answers for all calls: a grant for the session then applies to all of them."""
    mode: ApprovalMode = field(default=ApprovalMode.ASK, kw_only=True)
    """What happens to calls that no rule and no grant decides. A change applies from the next call on, also within a
    running turn; a question that is open stays open."""
    # The grants for the session, the oldest first. The party is in each key, because one person must not answer for
    # another (`Origin.party`).
    _session: OrderedDict[_GrantKey, _SessionGrant] = field(default_factory=OrderedDict, init=False)

    def decide(
        self,
        spec: ToolSpec,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        taint: tuple[str, ...] = (),
        change: str = "",
        origin: Origin = Origin(),  # noqa: B008 - frozen
        *,
        is_attended: bool | None = None,
    ) -> Approval | None:
        """Return the decision about a call; None if the approver has to be asked.

        Args:
            spec: The tool.
            arguments: The arguments of the call, as they are sent.
            taint: The sources of untrusted content that the model had read when it requested the call.
            change: The difference between the tool's definition now and at an earlier decision about the same call.
            origin: The turn that makes the call; empty for a call outside of a turn.
            is_attended: Whether somebody decides what the rules leave open; by default whether there is an approver.
        """
        is_attended = self.approve is not None if is_attended is None else is_attended
        call = self._propose(spec, arguments, taint)
        verdict = self.rules.find_verdict(call)
        # A deny comes before everything, also before the approver: a tired user must not be able to allow it.
        if verdict is not None and verdict.effect is Effect.DENY:
            return Approval(Decision.DENY, verdict.reason or _FORBIDDEN, verdict.decided_by)
        # Before rules and grants that allow: those were given for work, and a plan is asked for before any work.
        if must_wait_for_plan(self.mode, call, verdict):
            return Approval(Decision.DENY, PLAN_FIRST, f"{DECIDED_BY}{self.mode}")
        why = find_reason_to_ask(call, verdict)
        if not spec.server and not why:  # the host's own tools only read content of the conversation and resources
            return Approval(Decision.ONCE, decided_by="the host's own tool")
        if why and not is_attended:
            return deny_unattended(spec, ApprovalContext(call.server, why_asked=why))
        # Where there is a reason to ask, a grant of the tool is not enough: text of a stranger may have chosen the
        # arguments. Only a grant of this very call counts.
        granted = self._find_session_grant(spec, origin)
        decided_by = granted.find_call(call) if why else self._find_permission(call, verdict, granted, origin)
        if not decided_by and (is_attended or why):
            return None
        if not decided_by and self.mode is not ApprovalMode.ASK:
            # Whoever has chosen a mode that asks about this call has not allowed it.
            return deny_unattended(spec, ApprovalContext(call.server))
        decided_by = decided_by or NO_APPROVER
        # A permission is for the definition that was approved: a server may change the tool afterwards ("rug pull").
        if difference := self._describe_change(spec, granted) or change:
            if is_attended:
                return None
            log.warning("tool_changed", server=spec.server, tool=spec.tool)
            return deny_unattended(spec, ApprovalContext(call.server, difference))
        # Nobody has looked at the definition of a tool that only the mode `AUTO` allows, so it counts as not approved.
        if self.pins is not None and decided_by != f"{DECIDED_BY}{ApprovalMode.AUTO}":
            self.pins.pin(spec)
        return Approval(Decision.ONCE, decided_by=decided_by)

    def describe(
        self,
        call: ToolCallRequest,
        spec: ToolSpec,
        taint: tuple[str, ...] = (),
        change: str = "",
        earlier: PendingApproval | None = None,
        origin: Origin = Origin(),  # noqa: B008 - frozen
    ) -> PendingApproval:
        """Return what the approver is asked about a call; with the id of an earlier question about the same call.

        Other arguments are those of `ask`.
        """
        proposed = self._propose(spec, call.arguments, taint)
        digest = _compute_digest(proposed)
        granted = self._find_session_grant(spec, origin)
        since_grant = self._describe_change_since_grant(proposed, origin)
        difference = self._describe_change(spec, granted) or change or since_grant
        id_ = secrets.token_hex(16)
        if earlier is not None and earlier.digest == digest:
            id_ = earlier.id
        elif earlier is not None:
            # Another id too: an answer to the earlier question must never count for this one.
            difference = difference or _CHANGED_MEANWHILE
        why = find_reason_to_ask(proposed, self.rules.find_verdict(proposed))
        return PendingApproval(id_, call, proposed.server, spec.tool, why, difference, digest, agent=origin.agent)

    async def ask(
        self,
        call: ToolCallRequest,
        spec: ToolSpec,
        taint: tuple[str, ...] = (),
        change: str = "",
        origin: Origin = Origin(),  # noqa: B008 - frozen
        earlier: PendingApproval | None = None,
        answer: Approval | None = None,
    ) -> Approval:
        """Ask the approver, unless `decide` has a decision by now. If the approver fails, the call is denied.

        Args:
            call: The call.
            spec: The tool.
            taint: The sources of untrusted content, as in `decide`.
            change: The difference between the tool's definitions, as in `decide`.
            origin: The turn that makes the call; empty for a call outside of a turn.
            earlier: The question as `describe` has returned it before.
            answer: The answer, if it was given before; None to ask the approver. Without one, the call is deferred.
        """
        async with self.question_lock:
            # While this call waited for its turn to ask, another answer may have decided it ("for this session").
            known = self.decide(spec, call.arguments, taint, change, origin, is_attended=True)
            if known is not None and (answer is None or not known.allowed):
                return known
            asked = self.describe(call, spec, taint, change, earlier, origin)
            if answer is None:
                context = ApprovalContext(
                    asked.server,
                    asked.change,
                    asked.reason,
                    origin.turn,
                    origin.conversation,
                    asked.id,
                    origin.owner,
                    origin.agent,
                    origin.agent_calls,
                )
                answer = await self._ask_approver(call, spec, context)
            if answer.allowed and self.pins is not None:
                self.pins.pin(spec)
        # The user approved the arguments as changed, so the grant must not cover those of the model.
        arguments = call.arguments if answer.arguments is None else answer.arguments
        self._remember(answer, self._propose(spec, arguments, taint), origin, for_call_only=bool(asked.reason))
        return answer if answer.decided_by else replace(answer, decided_by=THE_USER)

    def decide_changed(self, spec: ToolSpec, approval: Approval, taint: tuple[str, ...] = ()) -> Approval:
        """Return the decision about a call whose arguments the approver has changed; a rule may deny the new values."""
        if not approval.allowed or approval.arguments is None:
            return approval
        # The user's edit passes the deny rules too; they may come from an administrator.
        verdict = self.rules.find_verdict(self._propose(spec, approval.arguments, taint))
        if verdict is None or verdict.effect is not Effect.DENY:
            return approval
        return Approval(Decision.DENY, verdict.reason or _FORBIDDEN, verdict.decided_by)

    def forget(self, server: str, tool: str | None = None) -> None:
        """Drop the session grants of a server's tools, or of one tool, because another server may get the same name."""
        for key in [key for key in self._session if key[1] == server and tool in (None, key[2])]:
            del self._session[key]

    def add_rule(self, effect: Effect, pattern: str) -> None:
        """Allow or deny the tools that match a pattern, like the client's options, until the client is closed."""
        allow = tuple(known for known in self.rules.allow if known != pattern)
        deny = tuple(known for known in self.rules.deny if known != pattern)
        if effect is Effect.ALLOW:
            allow = (*allow, pattern)
        else:
            deny = (*deny, pattern)
        self.rules = replace(self.rules, allow=allow, deny=deny, typed=self.rules.typed | {pattern})

    def set_mode(self, mode: ApprovalMode | str) -> None:
        """Change the mode, from the next call on.

        Raises:
            ValueError: The mode is not one of ask, read, plan, auto.
        """
        self.mode = ApprovalMode(mode)

    def set_policy(self, policy: Policy) -> None:
        """Replace the rules of the policy."""
        self.rules = replace(self.rules, policy=policy)

    @property
    def session_grants(self) -> tuple[tuple[str, str], ...]:
        """The server and the tool's own name of each tool that is allowed to someone until the client is closed."""
        return tuple(dict.fromkeys(key[1:] for key, grant in self._session.items() if grant.definition))

    @property
    def stored_grants(self) -> tuple[Grant, ...]:
        """The tools that are allowed in later runs too."""
        return self.grants.list_grants() if self.grants is not None else ()

    def revoke(self, which: str) -> tuple[str, ...]:
        """Revoke rules by their exact pattern, and grants by id, tool or pattern of tools; return what was revoked.

        Patterns from the client's options are revoked too, if they are equal to `which`.
        """
        revoked = [pattern for pattern in (*self.rules.allow, *self.rules.deny) if pattern == which]
        allow, deny = (tuple(p for p in rules if p != which) for rules in (self.rules.allow, self.rules.deny))
        self.rules = replace(self.rules, allow=allow, deny=deny)
        for server, tool in self.session_grants:
            if matches(which, server, tool):
                self.forget(server, tool)
                revoked.append(f"{server}/{tool}")
        named = {
            grant.id for grant in self.stored_grants if grant.id == which or matches(which, grant.server, grant.tool)
        }
        if self.grants is not None and named:
            revoked += [f"{grant.server}/{grant.tool}" for grant in self.grants.revoke(named)]
        return tuple(dict.fromkeys(revoked))

    def check_patterns(self, servers: Mapping[str, Connection], own: Iterable[ToolServer]) -> tuple[str, ...]:
        """Return a warning for each pattern that matches no tool of the servers, no function and no agent."""
        tools = {
            name: tuple(map(attrgetter("name"), server.tools)) if server.summary.state is ServerState.READY else None
            for name, server in servers.items()
        }
        tools |= {backend.name: tuple(tool.name for tool in backend.tools) for backend in own}
        settings = {name: server.settings for name, server in servers.items()}
        return tuple(check_patterns(self.rules, tools, settings, agents=self.agent_patterns))

    def _propose(self, spec: ToolSpec, arguments: Mapping[str, Any], taint: tuple[str, ...]) -> ProposedCall:
        entry = self.entries.get(find_called_server(spec, arguments))
        settings = entry if isinstance(entry, ServerSettings) else None
        reason = "" if spec.server else self.find_host_reason(spec, arguments)
        return ProposedCall(spec, arguments, settings, taint, reason)

    async def _ask_approver(self, call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        """Return the approver's answer; a denial with the reason if it fails, or returns a value of another type."""
        if self.approve is None:
            return Approval(Decision.DEFER, decided_by=NO_APPROVER)
        try:
            # The approver belongs to the embedding program, so its answer may be of any type.
            answer: object = self.approve(call, spec, context)
            if isinstance(answer, Awaitable):
                answer = await answer
            else:
                log.warning("approver_failed", tool=spec.name, is_async=False)
                return _deny_unasked("the approver is not an `async def` function")
        except Exception as error:  # noqa: BLE001 - any exception of the embedding program's approver denies the call
            log.failure("approver_failed", error, tool=spec.name)
            return _deny_unasked(f"the approver raised {type(error).__name__}", error)
        try:
            return read_answer(answer)
        except ValueError as error:
            log.warning("approver_failed", tool=spec.name, answer=type(answer).__name__)
            return _deny_unasked(f"the approver returned {error}")

    def _remember(self, answer: Approval, call: ProposedCall, origin: Origin, *, for_call_only: bool) -> None:
        granted = self._find_session_grant(call.spec, origin)
        definition = build_definition(call.spec)
        grants = self._find_stored_grants(origin)
        if answer.allowed:
            # A grant of the old definition would come back into force if the server changed the tool back.
            if granted.definition != definition:
                granted.definition = ""
            if grants is not None and call.settings is not None and self._describe_change_since_grant(call, origin):
                grants.drop(call.settings, call.spec.tool)
        if answer.decision not in (Decision.SESSION, Decision.ALWAYS):
            return
        if for_call_only:
            # "Always" about one suspicious call must not open the tool for all others.
            granted.calls.add(_compute_digest(call))
        elif not (
            answer.decision is Decision.ALWAYS
            and grants is not None
            and call.settings is not None
            and grants.add(call.settings, call.spec)
        ):
            granted.definition = definition
        if (key := self._build_key(call.spec, origin)) is not None:
            self._session[key] = granted
            if len(self._session) > MAX_SESSION_GRANTS:
                self._session.popitem(last=False)

    def _build_key(self, spec: ToolSpec, origin: Origin) -> _GrantKey | None:
        """Return the key of a grant for the session; None if nothing tells whose later calls it would apply to."""
        # The session of a client of the gateway is its own, also where all clients are those of one person.
        is_shared = self.single_user and not origin.client
        party = ("", "") if is_shared else origin.party
        return (party, spec.server, spec.tool) if is_shared or any(party) else None

    def _find_session_grant(self, spec: ToolSpec, origin: Origin) -> _SessionGrant:
        """Return what the party of a call has granted for the session, which may be nothing."""
        key = self._build_key(spec, origin) if self._session else None
        return (self._session.get(key) if key is not None else None) or _SessionGrant()

    def _find_stored_grants(self, origin: Origin) -> GrantStore | None:
        """Return the store of the grants that the person of a call has given; None if they are not stored."""
        if self.grants is None or self.single_user:
            return self.grants
        return self.grants.select_owner(origin.owner) if origin.owner else None

    def _find_permission(
        self, call: ProposedCall, verdict: Verdict | None, granted: _SessionGrant, origin: Origin
    ) -> str:
        """Return the source of a permission; empty if the approver has to decide."""
        if verdict is not None:
            return verdict.decided_by
        if granted.definition == build_definition(call.spec):
            return _SESSION_GRANT
        if (grants := self._find_stored_grants(origin)) is not None and call.settings is not None:
            grant = grants.find(call.settings, call.spec)
            if grant is not None:
                return f"grant {grant.id}"
        if single := granted.find_call(call):
            return single
        return f"{DECIDED_BY}{self.mode}" if may_run(self.mode, call, verdict) else ""

    def _describe_change_since_grant(self, call: ProposedCall, origin: Origin) -> str:
        """Return the difference between a tool's definition and its stored grant; empty without a difference."""
        grants = self._find_stored_grants(origin)
        if grants is None or call.settings is None:
            return ""
        return grants.describe_change(call.settings, call.spec)

    def _describe_change(self, spec: ToolSpec, granted: _SessionGrant) -> str:
        """Return the difference between a tool's definition and its approved one, of this run or an earlier run."""
        if self.pins is not None and (change := self.pins.describe_change(spec)):
            return change
        return compare_definitions(granted.definition, build_definition(spec)) if granted.definition else ""


def find_reason_to_ask(call: ProposedCall, verdict: Verdict | None) -> str:
    """Return why the approver has to be asked even if the call is allowed otherwise; empty for no reason."""
    reasons = []
    if verdict is not None and verdict.effect is Effect.ASK:
        reasons.append(f"{verdict.decided_by} asks{f': {verdict.reason}' if verdict.reason else ''}")
    # A rule without `"tainted": true` was written with the user's own words in mind, not with those of strangers.
    allows_tainted = verdict is not None and verdict.effect is Effect.ALLOW and verdict.allows_tainted
    if call.taint and can_act_or_send(call) and not allows_tainted:
        reasons.append(f"the conversation holds {describe_sources(call.taint)}, and this tool can act or send")
    if call.reason:
        reasons.append(call.reason)
    return "; ".join(reasons)


def deny_unattended(spec: ToolSpec, context: ApprovalContext) -> Approval:
    """Return the denial of a call that no rule allows while no user is available to approve it."""
    nobody = "no user is available to approve the call"
    if context.change:
        problem = f"{context.server!r} has changed the definition of its tool {spec.tool!r} since it was approved"
        return Approval(Decision.DENY, f"{problem}, and {nobody}", "changed definition")
    reason = f"{context.why_asked}, and {nobody}" if context.why_asked else nobody
    return Approval(Decision.DENY, reason, NO_APPROVER)


def _deny_unasked(problem: str, exception: Exception | None = None) -> Approval:
    # A broken approver denies: an error in the embedding program must not let a call run.
    reason = f"permission could not be asked for, because {problem}"
    return FailedApproval(Decision.DENY, reason, NO_APPROVER, problem=problem, exception=exception)


def _compute_digest(call: ProposedCall) -> str:
    """Return a digest of the call's arguments and the tool's definition, which a grant of one call is valid for."""
    text = json.dumps([build_definition(call.spec), dict(call.arguments)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
