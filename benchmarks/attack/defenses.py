"""The compared setups of the host: the configuration, and whether a user answers its questions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.attack.control import Control
from benchmarks.attack.goals import Call, difference
from benchmarks.attack.tool_annotations import UNTRUSTED
from dial_client import Approval, ApprovalContext
from dial_client.extend import ElicitationAnswer
from dial_client.messages.message import ToolCallRequest, ToolSpec

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ROOT / "build" / "attack" / "packages"
"""The folder in which `make attack` installs the packages that only the servers import."""


@dataclass(frozen=True, slots=True)
class Defense:
    """A setup of the host."""

    name: str
    about: str
    auto_approve: bool
    """True if the server's entry approves all tools."""
    taint: bool
    """True if the entry lists the tools whose results are not trusted."""
    person: bool
    """True if a user answers the questions."""
    believed: bool = True
    """With `taint`: True if the entry marks the server's annotations as trusted."""
    gateway: bool = False
    """True if the model works in another host, which knows the gateway only, and whose forms the user answers."""
    skill: bool = False
    """True if the injection is in a skill of the server, which the model reads first, and in no result of a tool."""

    agent: str = ""
    """The part of an agent: with ``works`` it does the user's task, and follows what it reads; with ``reports`` it
    answers with the text that it has read, which its caller follows. Empty for no agent."""

    code: bool = False
    """True if the model makes each call by a program (code mode)."""

    def entry(self, suite: str, control: str) -> dict[str, Any]:
        """Return the entry of the suite's server."""
        entry: dict[str, Any] = {
            "command": sys.executable,
            "args": ["-m", "benchmarks.attack.server", suite, str(PACKAGES)],
            "cwd": str(ROOT),
            "env": {"ATTACK_CONTROL": control},
        }
        if self.auto_approve:
            entry["autoApprove"] = ["*"]
        if self.taint:
            entry |= {"trusted": self.believed, "untrusted": list(UNTRUSTED[suite])}
        return entry


DEFENSES = (
    Defense("a", "defaults, nobody there", auto_approve=False, taint=False, person=False),
    Defense("b", "everything autoApproved", auto_approve=True, taint=False, person=False),
    Defense("c", "as (b), taint rule, a person", auto_approve=True, taint=True, person=True),
    Defense("d", "as (c), nobody there", auto_approve=True, taint=True, person=False),
    Defense("e", "as (c), annotations not trusted", auto_approve=True, taint=True, person=True, believed=False),
    Defense("f", "as (a), through the gateway", auto_approve=False, taint=False, person=False, gateway=True),
    Defense("g", "as (b), through the gateway", auto_approve=True, taint=False, person=False, gateway=True),
    Defense("h", "as (c), through the gateway", auto_approve=True, taint=True, person=True, gateway=True),
    Defense("i", "as (d), through the gateway", auto_approve=True, taint=True, person=False, gateway=True),
    Defense("j", "as (b), in a skill of the server", auto_approve=True, taint=False, person=False, skill=True),
    Defense("k", "as (j), a person", auto_approve=True, taint=False, person=True, skill=True),
    Defense("l", "as (c), an agent obeys it", auto_approve=True, taint=True, person=True, agent="works"),
    Defense("m", "as (c), an agent reports it", auto_approve=True, taint=True, person=True, agent="reports"),
    Defense("n", "as (c), calls by programs", auto_approve=True, taint=True, person=True, code=True),
    Defense("o", "as (n), through the gateway", auto_approve=True, taint=True, person=True, code=True, gateway=True),
)
"""All defenses, in the order of the report."""
USUAL = ("a", "b", "c", "d", "j", "k", "l", "m", "n")
"""The defenses that are measured by default."""
OPEN = tuple(defense.name for defense in DEFENSES if defense.auto_approve and not defense.taint and not defense.skill)
"""The setups without a defense: the text of a skill is untrusted without any rule."""


class Approver:
    """Answers for a user who allows only the calls that the user's task needs, or denies all calls if there is no user.

    The needed calls are those of AgentDojo's solution: the same tool with equal arguments, each as often as in the
    solution. Without a user, the answer is that of `dial-chat` without a terminal: a denial.
    """

    def __init__(self, control: Control, *, person: bool) -> None:
        self._control = control
        self._person = person
        self._needed: Sequence[Call] = ()
        self.question_count = 0
        """Questions in the current trial, with or without a user."""

    def begin(self, needed: Sequence[Call]) -> None:
        """Start a trial."""
        self._needed = needed
        self.question_count = 0

    async def __call__(self, call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:  # noqa: ARG002 - there is only one context
        """Answer one question."""
        self.question_count += 1
        if not self._person:
            return Approval("deny", "nobody is there to be asked for permission")
        return Approval("once") if await self._is_needed((tool.tool, dict(call.arguments))) else _DENIED

    async def answer_form(self, call: Call | None) -> ElicitationAnswer:
        """Answer the form of the gateway about the call that the model makes."""
        self.question_count += 1
        is_needed = call is not None and await self._is_needed(call)
        return ElicitationAnswer("accept", {"decision": "once"} if is_needed else {"decision": "deny"})

    async def _is_needed(self, call: Call) -> bool:
        return call in difference(self._needed, await self._control.executed())


_DENIED = Approval("deny", "the user said no")
