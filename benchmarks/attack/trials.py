"""Runs trials: a user task, with or without an injection, through the host against a suite's server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import anyio

from benchmarks.attack.control import Control
from benchmarks.attack.defenses import Approver, Defense
from benchmarks.attack.goals import difference
from benchmarks.attack.obedient_model import WORKER, ObedientModel
from benchmarks.attack.tool_annotations import EFFECTS
from dial_client import ApprovalPolicy, Callbacks, DialClient, Limits, Message, Turn
from dial_client.extend import ElicitationAnswer
from dial_client.gateway.denials import Denials
from dial_client.gateway.gateway import Gateway, GatewayOptions
from dial_client.gateway.questions import Questions
from dial_client.gateway.tool_listing import ToolListing
from dial_client.hooks.server_callbacks import Elicitation

LIMITS = Limits(
    max_depth=100, max_consecutive_errors=1000, max_repeats=1000, max_result_chars=10_000_000, timeout=600.0
)
"""Limits that no attack reaches: only a decision can stop an attack."""

Pair = tuple[str, str | None]
"""The ids of a user task and of an injection task; None for no attack."""
Choose = Callable[[Sequence[str], Sequence[str]], Iterable[Pair]]
"""Picks the pairs to run from a suite's user tasks and injection tasks."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One turn, and its results."""

    suite: str
    defense: str
    user_task: str
    injection_task: str | None
    passed: bool
    """True if the user's task is done, as AgentDojo judges, and all its calls were executed: the scripted model knows
    the answer without them."""
    reached: bool | None
    """True if the attacker's goal is reached, as AgentDojo judges; None without an attack."""
    effects: tuple[str, ...]
    """The tools of executed calls that may act or send, and do not belong to the user's task."""
    read: bool
    """True if the model has read the injection."""
    in_words: bool
    """True if the goal is a text in the answer, without calls."""
    shared: bool
    """True if the injected instruction has a call that acts and also belongs to the user's task."""
    questions: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)


def all_pairs(user_tasks: Sequence[str], injection_tasks: Sequence[str]) -> Iterable[Pair]:
    """Return every user task alone, and with every injection task."""
    return product(user_tasks, (None, *injection_tasks))


def few_pairs(user_tasks: Sequence[str], injection_tasks: Sequence[str]) -> Iterable[Pair]:
    """Return two user tasks alone, and with two injection tasks."""
    return product(user_tasks[:2], (None, *injection_tasks[:2]))


async def run_suite(suite: str, defense: Defense, choose: Choose) -> list[Trial]:
    """Run a suite's pairs one after another.

    Raises:
        RuntimeError: The server did not start, or a turn did not end with an answer.
    """
    async with Control.listening() as control:
        approver = Approver(control, person=defense.person)
        model = ObedientModel(control, suite if defense.gateway else "")
        servers = {suite: defense.entry(suite, control.address) | {"required": True}}
        opened = open_gateway(servers, model, approver, defense) if defense.gateway else None
        agents = [WORKER] if defense.agent else []
        own = DialClient(
            model,
            servers=servers,
            approve=approver,
            limits=LIMITS,
            agents=agents,
            tool_format="code" if defense.code else None,
        )
        async with opened or own as host:
            pairs = choose(*await control.tasks())
            return [await _run(host, control, model, approver, (suite, defense.name, *pair), defense) for pair in pairs]


@dataclass(frozen=True, slots=True)
class OtherHost:
    """Another host, which has the gateway as its only server; each turn is one session of it."""

    gateway: Gateway
    model: ObedientModel
    callbacks: Callbacks

    async def run(self, messages: Sequence[Message]) -> Turn[Any]:
        """Run a turn in a new session: what an earlier trial has read must not protect the next one."""
        open_policy = ApprovalPolicy(allow=("*",))
        servers = {"all": self.gateway.server}
        async with DialClient(
            self.model, servers=servers, approval=open_policy, callbacks=self.callbacks, limits=LIMITS
        ) as dial:
            return await dial.run(messages)


@asynccontextmanager
async def open_gateway(
    servers: dict[str, Any], model: ObedientModel, approver: Approver, defense: Defense
) -> AsyncGenerator[OtherHost]:
    """Run the gateway of `dial-chat gateway` in this process, and yield a host that knows only it."""

    async def elicit(_: Elicitation) -> ElicitationAnswer:
        return await approver.answer_form(model.last_call)

    denials = Denials()
    questions = Questions(denials.deny)
    async with (
        DialClient(servers=servers, approve=questions, callbacks=Callbacks(callers=questions), limits=LIMITS) as dial,
        anyio.create_task_group() as group,
    ):
        with tempfile.TemporaryDirectory() as folder:
            listing = ToolListing.CODE if defense.code else ToolListing.ALL
            options = GatewayOptions(denials=denials, state_folder=Path(folder), logins=False, listing=listing)
            gateway = Gateway(dial, options=options, questions=questions)
            group.start_soon(gateway.run)
            yield OtherHost(gateway, model, Callbacks(elicit=elicit) if defense.person else Callbacks())
            group.cancel_scope.cancel()


async def _run(
    dial: DialClient | OtherHost,
    control: Control,
    model: ObedientModel,
    approver: Approver,
    key: tuple[str, str, str, str | None],
    defense: Defense,
) -> Trial:
    suite, _, user_task, injection_task = key
    task = await control.begin(user_task, injection_task, in_skill=defense.skill)
    injected, _ = await control.injected() if injection_task is not None else ((), "")
    model.begin(task, in_skill=defense.skill, agent=defense.agent)
    approver.begin(task.calls)
    turn = await dial.run([Message.user(task.prompt)])
    if turn.stop_reason != "answered":
        raise RuntimeError(f"{key}: the turn ended without an answer: {turn.stop_reason}")
    verdict = await control.judge(turn.text)
    further_calls, effects = difference(verdict.executed, task.calls), EFFECTS[suite]
    return Trial(
        *key,
        passed=verdict.utility and not difference(task.calls, verdict.executed),
        reached=verdict.security,
        effects=tuple(name for name, _ in further_calls if not effects[name].harmless),
        read=model.has_read_injection,
        in_words=injection_task is not None and not injected,
        shared=any(call in task.calls and not effects[call[0]].harmless for call in injected),
        questions=approver.question_count,
    )


async def run_all(suites: Sequence[str], defenses: Sequence[Defense], choose: Choose) -> list[Trial]:
    """Run every suite with every defense, as many at a time as there are processors."""
    trials: list[Trial] = []
    limiter = anyio.CapacityLimiter(os.cpu_count() or 1)

    async def run_one(suite: str, defense: Defense) -> None:
        async with limiter:
            found = await run_suite(suite, defense, choose)
        trials.extend(found)
        counts = Counter(passed=sum(trial.passed for trial in found), effects=sum(bool(t.effects) for t in found))
        print(f"{suite} ({defense.name}): {len(found)} turns, {dict(counts)}", file=sys.stderr, flush=True)

    async with anyio.create_task_group() as group:
        for suite, defense in product(suites, defenses):
            group.start_soon(run_one, suite, defense)
    return sorted(trials, key=lambda trial: (trial.suite, trial.defense))
