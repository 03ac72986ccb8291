"""Who may call what: a deny always wins, then what is allowed, then the approver is asked."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

import anyio

from dial_client.logs import get_logger
from dial_client.messages import ToolCallRequest, ToolSpec
from dial_client.servers.pinning import Pins, definition, difference

log = get_logger(__name__)


class Decision(StrEnum):
    """What an approver can say."""

    ONCE = "once"
    """This call."""
    SESSION = "session"
    """This tool, for as long as the client is open."""
    ALWAYS = "always"
    """The same as `SESSION`; a program may remember it for longer."""
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
    decided_by: str = ""
    """Who or which rule decided, for the audit log; empty where the approver does not say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decision", Decision(self.decision))

    @property
    def allowed(self) -> bool:
        """Whether the call may run."""
        return self.decision is not Decision.DENY


_UNASKED = Approval(Decision.DENY, "permission could not be asked for")

Approver = Callable[[ToolCallRequest, ToolSpec, str], Awaitable[Approval]]
"""Is asked with the call, the tool as it was offered, and the server's name in the configuration.

Questions come one after the other, unless it has an attribute ``side_by_side`` that is true.
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns (``*``, ``?``) that decide without asking.

    A tool is named by its offered name, ``server__tool`` or ``server/tool``; a deny also matches the tool's own name,
    whatever it is offered as.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    auto_approve: Mapping[str, tuple[str, ...]] | None = None
    """For each server, with or without any, the patterns of its own tool names that its configuration approves."""

    def denies(self, spec: ToolSpec) -> bool:
        """Whether a deny matches any name of the tool."""
        return _matches((*_names(spec), spec.tool), self.deny)

    def allows(self, spec: ToolSpec) -> bool:
        """Whether the configuration or an allow matches."""
        configured = (self.auto_approve or {}).get(spec.server, ())
        return _matches((spec.tool,), configured) or _matches(self._names_of_its_own(spec), self.allow)

    def _names_of_its_own(self, spec: ToolSpec) -> list[str]:
        """Give the names of a tool but those that begin like another server's: a server calls its tools as it likes."""
        *doubtful, certain = _names(spec)
        return [name for name in doubtful if self._owner(name) in (None, spec.server)] + [certain]

    def _owner(self, name: str) -> str | None:
        servers = self.auto_approve or {}
        owners = [one for one in servers if name.startswith((f"{one}__", f"{_offered(one)}__"))]
        return max(owners, key=len, default=None)


def _names(spec: ToolSpec) -> tuple[str, ...]:
    return (spec.name, f"{spec.server}__{spec.tool}", f"{spec.server}/{spec.tool}")


def _offered(server: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


def _matches(names: Iterable[str], patterns: Iterable[str]) -> bool:
    patterns = tuple(patterns)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


class Approvals:
    """The one place every call passes before it runs.

    What is granted for longer than a call is granted to the tool as it was then: one that is described otherwise, or
    takes other arguments, is asked about again.

    Args:
        rules: decide without asking.
        approve: is asked where they say nothing; None lets all that through.
        pins: hold what was approved in earlier runs, by whatever way; None for none. A tool that differs from its pin
            is asked about whatever the rules allow, and refused where nobody can be asked.
    """

    def __init__(self, rules: Rules, approve: Approver | None, pins: Pins | None = None) -> None:
        self._rules = rules
        self._approve = approve
        self._pins = pins
        self._granted: dict[tuple[str, str], str] = {}
        is_patient = not getattr(approve, "side_by_side", False)
        self._turn_to_ask: AbstractAsyncContextManager[None] = anyio.Lock() if is_patient else nullcontext()

    def decided(self, spec: ToolSpec) -> Approval | None:
        """Give what is known without asking; None where a person has to be asked."""
        if self._rules.denies(spec):
            return Approval(Decision.DENY, "a rule of the user's forbids this tool")
        if not spec.server:  # the host's own read what the conversation has already seen, and touch nothing
            return Approval(Decision.ONCE)
        if self._approve is not None and not self._rules.allows(spec) and not self._is_granted(spec):
            return None
        if self._change(spec):
            return None if self._approve is not None else _changed(spec)
        if self._pins is not None:
            self._pins.pin(spec)
        return Approval(Decision.ONCE)

    async def ask(self, call: ToolCallRequest, spec: ToolSpec) -> Approval:
        """Ask the approver; one that fails is a no."""
        async with self._turn_to_ask:
            if (known := self.decided(spec)) is not None:
                return known
            assert self._approve is not None
            try:
                # What the embedding program gives nobody has checked: it may be anything.
                answer: object = await self._approve(call, replace(spec, change=self._change(spec)), spec.server)
            except Exception as error:  # noqa: BLE001 - whatever the embedding program's approver raises: it fails closed
                log.warning("approver_failed", tool=spec.name, error=type(error).__name__)
                return _UNASKED
            if not isinstance(answer, Approval):
                log.warning("approver_failed", tool=spec.name, answer=type(answer).__name__)
                return _UNASKED
            if answer.allowed and self._pins is not None:
                self._pins.pin(spec)
        if answer.allowed:
            self._granted.pop((spec.server, spec.tool), None)
        if answer.decision in (Decision.SESSION, Decision.ALWAYS):
            self._granted[spec.server, spec.tool] = definition(spec)
        return answer

    def forget(self, server: str) -> None:
        """Take back what was granted to the tools of a server: another one may have its name next."""
        self._granted = {key: granted for key, granted in self._granted.items() if key[0] != server}

    def _is_granted(self, spec: ToolSpec) -> bool:
        granted = self._granted.get((spec.server, spec.tool))
        return granted is not None and granted == definition(spec)

    def _change(self, spec: ToolSpec) -> str:
        """Say how a tool differs from what was approved of it, in this run or before."""
        granted = self._granted.get((spec.server, spec.tool))
        pinned = self._pins.change(spec) if self._pins is not None else ""
        return pinned or (difference(granted, definition(spec)) if granted is not None else "") or spec.change


def _changed(spec: ToolSpec) -> Approval:
    said = f"{spec.server!r} describes its tool {spec.tool!r} otherwise than when it was approved"
    log.warning("tool_changed", server=spec.server, tool=spec.tool)
    return Approval(Decision.DENY, f"{said}, and nobody is there to be asked about it", "changed definition")
