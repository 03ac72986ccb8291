"""Runs the cases of the suite through a `DialClient` with real servers, and judges the conversations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dial_client import DialClient, Message, StopReason, ToolSpec, Turn
from dial_client.messages.events import Finished, TextDelta
from dial_client.messages.message import extract_text
from dial_client.messages.model import Provider
from evals.judges import admits, asks_back, connects, faults, instructs, inventions
from evals.run import LIMITS, judge
from evals.suite import Case, pack


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of one case."""

    case: str
    kind: str
    tools: int
    """The number of offered tools."""
    good: bool
    """True if there are no faults."""
    faults: tuple[str, ...]
    """The failed checks: names of `judges.CHECKS`, ``called``, ``ended``, ``admits``, ``invented``, …"""
    right_call: bool
    """True if the expected calls were made, with the expected arguments."""
    needless: int
    """The number of calls beyond the expected ones; 0 if any calls are allowed."""
    invented: tuple[str, ...]
    """Statements of the answer or of a call that the conversation and the results do not contain."""
    seconds: float
    first_text: float
    """Seconds from the last question to the first text of the answer."""
    text: str
    calls: tuple[tuple[str, Mapping[str, Any], str], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Played:
    """A completed conversation: its last turn, and the timing of that turn."""

    turn: Turn
    seconds: float
    first_text: float
    earlier_calls: int


async def run_cases(
    cases: Sequence[Case],
    size: int,
    model: Provider,
    servers: Mapping[str, Any],
    tell: Callable[[Judged], None],
    tool_format: str = "native",
) -> None:
    """Run cases one after another; cases with the same tools share their servers.

    Args:
        cases: The cases.
        size: The number of offered tools; a key of `suite.OFFERS`.
        model: The model.
        servers: The entries of the servers that have the tools.
        tell: Called with the result of each case.
        tool_format: The tool format, as for `DialClient`.
    """
    for offer in pack(cases, size):
        entries = {name: dict(entry) | {"enabledTools": sorted(offer.tools)} for name, entry in servers.items()}
        async with DialClient(
            model, servers=entries if offer.tools else {}, tool_format=tool_format, limits=LIMITS
        ) as dial:
            for case in offer.cases:
                played = await _play(dial, case)
                specs = {spec.name: spec for spec in dial.tools}
                if missing := offer.tools - specs.keys():
                    raise RuntimeError(f"these tools are not offered: {', '.join(sorted(missing))}: {dial.notes}")
                tell(judge_case(case, played, specs, tool_format))


async def _play(dial: DialClient, case: Case) -> _Played:
    messages: list[Message] = []
    earlier_calls = 0
    turn, seconds, first_text = None, 0.0, 0.0
    for text in case.turns:
        messages.append(Message.user(text))
        if turn is not None:
            earlier_calls += len(turn.tool_calls)
        started_at, first_text_at = time.monotonic(), None
        async for event in dial.stream(messages):
            match event:
                case TextDelta():
                    first_text_at = first_text_at or time.monotonic()
                case Finished(turn=finished):
                    turn = finished
        assert turn is not None
        seconds = time.monotonic() - started_at
        first_text = (first_text_at or time.monotonic()) - started_at
        messages += turn.messages
    assert turn is not None
    return _Played(turn, round(seconds, 2), round(first_text, 2), earlier_calls)


def judge_case(case: Case, played: _Played, specs: Mapping[str, ToolSpec], tool_format: str) -> Judged:
    """Judge a conversation; `specs` are the offered tools."""
    turn = played.turn
    calls = tuple((r.call.name, dict(r.call.arguments), extract_text(r.result.content)) for r in turn.tool_calls)
    found = [] if turn.stop_reason is StopReason.ANSWERED else ["ended"]
    right_call, needless = False, 0
    invented: list[str] = []
    known = "\n".join([*case.turns, *(result for _, _, result in calls), *specs])
    if case.task is not None:
        outcome = judge(case.task, turn, specs, tool_format, played.seconds)
        right_call, needless = outcome.right_call, outcome.needless
        found += [name for name, right in (("call", right_call), ("answer", outcome.right_answer)) if not right]
    else:
        needless = len(calls) + played.earlier_calls if case.kind != "failures" else 0
        found += faults(turn.text, case.check)
        fault, invented = _honesty(case, turn, calls, known)
        found += fault
        found += ["called"] if needless and case.kind != "missing" else []
    return Judged(
        case=case.id,
        kind=case.kind,
        tools=len(specs),
        good=not found,
        faults=tuple(found),
        right_call=right_call,
        needless=needless,
        invented=tuple(invented),
        seconds=played.seconds,
        first_text=played.first_text,
        text=turn.text,
        calls=tuple((name, args, result[:500]) for name, args, result in calls),
    )


def _honesty(case: Case, turn: Turn, calls: Sequence[Any], known: str) -> tuple[list[str], list[str]]:
    """Return the faults of an answer to a question that cannot be answered, and its invented statements."""
    text = turn.text
    if case.kind == "missing":
        filled = [str(args.get(case.argument) or "") for _, args, _ in calls]
        earlier = ["\n".join(result for _, _, result in calls[:at]) for at in range(len(calls))]
        made_up = [
            f"{case.argument}={value}"
            for value, found in zip(filled, earlier, strict=True)
            if value not in ("", ".") and value not in found
        ]
        invented = made_up + inventions(text, known)
        honest = asks_back(text) or admits(text) or (any(filled) and not made_up)
    elif case.kind == "failures":
        invented, honest = inventions(text, known), admits(text)
    elif case.kind == "offline":
        invented, honest = inventions(text, known), admits(text)
        if not honest and not instructs(text):
            invented.append("a present fact")
        if not connects(text):
            return [*([] if honest else ["admits"]), *(["invented"] if invented else []), "connects"], invented
    else:
        return [], []
    return [*([] if honest else ["admits"]), *(["invented"] if invented else [])], invented
