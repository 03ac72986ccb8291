"""Who may call what: a deny always wins, then what is allowed, then the approver is asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import anyio

from dial_client.logs import get_logger
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.servers.connection import Connection
from dial_client.servers.status import ServerState
from dial_client.servers.tool_pins import ToolPins, definition, difference
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.policy_config import Effect
from dial_client.tools import pattern_warnings
from dial_client.tools.grants import GrantStore
from dial_client.tools.policy import PolicyRules, ProposedCall, Verdict, can_act_or_send
from dial_client.tools.taint import in_words

__all__ = ["NO_APPROVER", "THE_USER", "Approval", "ApprovalChecker", "Approver", "Decision", "PolicyRules"]

log = get_logger(__name__)


class Decision(StrEnum):
    """What an approver can say."""

    ONCE = "once"
    """This call."""
    SESSION = "session"
    """This tool, for as long as the client is open."""
    ALWAYS = "always"
    """This tool, in later runs too, until it changes or the grant is revoked; where nothing is kept as `SESSION`."""
    DENY = "deny"
    """Not this call."""


@dataclass(frozen=True, slots=True)
class Approval:
    """An approver's answer: ``Approval("once")``, ``Approval("deny", "a reason the model is told")``.

    Raises:
        ValueError: the decision is none of once, session, always, deny.
    """

    decision: Decision | str
    reason: str = ""
    decided_by: str = field(default="", compare=False)
    """Who or what decided, for a record: ``policy rule 3 (servers.json)``, ``autoApprove of time``, ``--allow time/*``,
    ``the user``, ``grant …``, ``no approver``; an approver that leaves it empty is taken for the user."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decision", Decision(self.decision))

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self.decision is not Decision.DENY


THE_USER, NO_APPROVER = "the user", "no approver"
"""Who decided: a person, or nobody, because none is there."""
_UNASKED = Approval(Decision.DENY, "permission could not be asked for", NO_APPROVER)
_FORBIDDEN = "a rule of the user's forbids this tool"

Approver = Callable[[ToolCallRequest, ToolSpec, str], Awaitable[Approval]]
"""Is asked with the call, the tool as it was offered, and the server's name in the configuration.

It is asked about one call at a time, unless `ApprovalPolicy.concurrent` says otherwise.
"""


class ApprovalChecker:
    """The one place every call passes before it runs.

    What is granted for longer than a call is granted to the tool as it was then: one that is described otherwise, or
    takes other arguments, is asked about again.

    A deny wins over everything. A policy's ask, and untrusted content in the conversation, bring the question whatever
    else would let the call through; the answer then holds for this very call only, also where it is given for longer.

    Args:
        rules: decide without asking.
        approve: is asked where they say nothing; None lets all that through, and refuses what has to be asked about.
        pins: hold what was approved in earlier runs, by whatever way; None for none. A tool that differs from its pin
            is asked about whatever the rules allow, and refused where nobody can be asked.
        entries: how each server is reached: paths and annotations are judged by that.
        grants: hold what was allowed for always; None where nothing is kept.
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
        """What decides without asking."""
        self._approve = approve
        self._pins = pins
        self._entries = {} if entries is None else entries
        self._grants = grants
        self._granted: dict[tuple[str, str], str] = {}
        self._answered: dict[tuple[str, str], set[str]] = {}
        """Of each tool, the calls that were allowed for the session although they had to be asked about."""
        self._turn_to_ask: AbstractAsyncContextManager[None] = nullcontext() if concurrent else anyio.Lock()

    def decided(
        self, spec: ToolSpec, arguments: Mapping[str, Any] = MappingProxyType({}), taint: tuple[str, ...] = ()
    ) -> Approval | None:
        """Return what is known without asking; None where a person has to be asked.

        Args:
            spec: the tool.
            arguments: those of the call, as they are sent.
            taint: the sources of untrusted content that the model had read when it asked for the call.
        """
        call = self._proposed(spec, arguments, taint)
        verdict = self.rules.verdict(call)
        if verdict is not None and verdict.effect is Effect.DENY:
            return Approval(Decision.DENY, verdict.reason or _FORBIDDEN, verdict.decided_by)
        why = why_asked(call, verdict)
        if not spec.server and not why:  # the host's own read what the conversation has already seen, and touch nothing
            return Approval(Decision.ONCE, decided_by="the host's own tool")
        if why and self._approve is None:
            return Approval(Decision.DENY, f"{why}, and nobody is there to be asked", NO_APPROVER)
        decided_by = self._answer_before(call) if why else self._permission(call, verdict)
        if not decided_by:
            return None
        if self._change(spec):
            return None if self._approve is not None else _changed(spec)
        if self._pins is not None:
            self._pins.pin(spec)
        return Approval(Decision.ONCE, decided_by=decided_by)

    async def ask(self, call: ToolCallRequest, spec: ToolSpec, taint: tuple[str, ...] = ()) -> Approval:
        """Ask the approver; one that fails is a no. `taint` is as for `decided`."""
        async with self._turn_to_ask:
            if (known := self.decided(spec, call.arguments, taint)) is not None:
                return known
            assert self._approve is not None
            proposed = self._proposed(spec, call.arguments, taint)
            why = why_asked(proposed, self.rules.verdict(proposed))
            try:
                # What the embedding program gives nobody has checked: it may be anything.
                shown = replace(spec, change=self._change(spec) or self._granted_otherwise(proposed), why_asked=why)
                answer: object = await self._approve(call, shown, _server_of(spec, call.arguments))
            except Exception as error:  # noqa: BLE001 - whatever the embedding program's approver raises: it fails closed
                log.warning("approver_failed", tool=spec.name, error=type(error).__name__)
                return _UNASKED
            if not isinstance(answer, Approval):
                log.warning("approver_failed", tool=spec.name, answer=type(answer).__name__)
                return _UNASKED
            if answer.allowed and self._pins is not None:
                self._pins.pin(spec)
        self._remember(answer, proposed, is_forced=bool(why))
        return answer if answer.decided_by else replace(answer, decided_by=THE_USER)

    def forget(self, server: str) -> None:
        """Take back what was granted to the tools of a server: another one may have its name next."""
        self._granted = {key: granted for key, granted in self._granted.items() if key[0] != server}
        self._answered = {key: calls for key, calls in self._answered.items() if key[0] != server}

    def notes(self, servers: Mapping[str, Connection]) -> tuple[str, ...]:
        """Return a line for each pattern that matches no tool of these servers."""
        known = {name: server.status.state is ServerState.READY for name, server in servers.items()}
        tools = {name: tuple(tool.name for tool in servers[name].tools) if known[name] else None for name in known}
        return tuple(pattern_warnings.notes(self.rules, tools, {name: one.settings for name, one in servers.items()}))

    def _proposed(self, spec: ToolSpec, arguments: Mapping[str, Any], taint: tuple[str, ...]) -> ProposedCall:
        entry = self._entries.get(_server_of(spec, arguments))
        return ProposedCall(spec, arguments, entry if isinstance(entry, ServerSettings) else None, taint)

    def _remember(self, answer: Approval, call: ProposedCall, *, is_forced: bool) -> None:
        key, now = (call.spec.server, call.spec.tool), definition(call.spec)
        if answer.allowed and self._granted.get(key) != now:
            self._granted.pop(key, None)
        if answer.allowed and self._granted_otherwise(call) and self._grants is not None and call.settings is not None:
            self._grants.drop(call.settings, call.spec.tool)
        if answer.decision not in (Decision.SESSION, Decision.ALWAYS):
            return
        if is_forced:  # whoever had to be asked has allowed this very call, and not the tool
            self._answered.setdefault(key, set()).add(_digest(call))
        elif answer.decision is Decision.SESSION or not self._is_kept(call):
            self._granted[key] = now

    def _is_kept(self, call: ProposedCall) -> bool:
        """Keep a grant for later runs, where that can be done."""
        return self._grants is not None and call.settings is not None and self._grants.add(call.settings, call.spec)

    def _permission(self, call: ProposedCall, verdict: Verdict | None) -> str:
        """Return what lets a call through that nothing has to be asked about; empty where that is a person's affair."""
        if verdict is not None:
            return verdict.decided_by
        spec = call.spec
        granted = self._granted.get((spec.server, spec.tool))
        if granted is not None and granted == definition(spec):
            return "grant for the session"
        kept = (
            self._grants.find(call.settings, spec) if self._grants is not None and call.settings is not None else None
        )
        if kept is not None:
            return f"grant {kept.id}"
        if before := self._answer_before(call):
            return before
        return "" if self._approve is not None else NO_APPROVER

    def _granted_otherwise(self, call: ProposedCall) -> str:
        """Return how a tool differs from what was granted of it for always; empty where it does not."""
        if self._grants is None or call.settings is None:
            return ""
        return self._grants.change(call.settings, call.spec)

    def _answer_before(self, call: ProposedCall) -> str:
        """Return who allowed this very call before; empty where nobody did."""
        calls = self._answered.get((call.spec.server, call.spec.tool), ())
        return "grant for the session" if _digest(call) in calls else ""

    def _change(self, spec: ToolSpec) -> str:
        """Say how a tool differs from what was approved of it, in this run or before."""
        granted = self._granted.get((spec.server, spec.tool))
        pinned = self._pins.change(spec) if self._pins is not None else ""
        return pinned or (difference(granted, definition(spec)) if granted is not None else "") or spec.change


def _server_of(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Return the server that a call reaches: of the host's own tools the one whose resource is read."""
    return spec.server or str(arguments.get("server", ""))


def why_asked(call: ProposedCall, verdict: Verdict | None) -> str:
    """Return why a person has to be asked, whatever else allows the call; empty where nothing says so."""
    reasons = []
    if verdict is not None and verdict.effect is Effect.ASK:
        reasons.append(f"{verdict.decided_by} asks{f': {verdict.reason}' if verdict.reason else ''}")
    is_meant = verdict is not None and verdict.effect is Effect.ALLOW and verdict.though_tainted
    if call.taint and can_act_or_send(call) and not is_meant:
        reasons.append(f"the conversation holds {in_words(call.taint)}, and this tool can act or send")
    return "; ".join(reasons)


def _digest(call: ProposedCall) -> str:
    """Return what tells a call from others of other arguments, or of a tool that has changed."""
    said = json.dumps([definition(call.spec), dict(call.arguments)], sort_keys=True, default=str)
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()


def _changed(spec: ToolSpec) -> Approval:
    said = f"{spec.server!r} describes its tool {spec.tool!r} otherwise than when it was approved"
    log.warning("tool_changed", server=spec.server, tool=spec.tool)
    return Approval(Decision.DENY, f"{said}, and nobody is there to be asked about it", "changed definition")
