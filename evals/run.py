"""Runs tasks with a `DialClient`, and judges the answers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from dial_client import DialClient, Limits, Message, StopReason, ToolSpec, Turn
from dial_client.messages.message import Failure, extract_text
from dial_client.messages.model import Delta, ModelInfo, ModelRequest, Preparable, Provider
from evals.matching import is_expected, says
from evals.tasks import Offer, Task

LIMITS = Limits(max_depth=5, timeout=600.0)
"""A model that keeps calling tools is stopped early; the timeout is long enough for slow machines."""
_MARKUP = re.compile(
    r"</?tool_|<\|im_|^\s*(Action|Action Input|Observation|Thought|Final Answer) *:|\"(name|tool|arguments)\" *:",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one task."""

    task: str
    kind: str
    format: str
    tools: int
    """The number of offered tools."""
    well_formed: bool
    """True if every call could be parsed, named an offered tool and matched its schema, and there was an answer without
    markup."""
    right_tool: bool
    """True if the expected tools were called in order."""
    right_call: bool
    """True if the expected calls were made, with the expected arguments."""
    right_answer: bool
    needless: int
    """The number of calls beyond the expected ones."""
    seconds: float
    """Seconds from the question to the answer."""
    stop_reason: str
    calls: tuple[tuple[str, Mapping[str, Any], str], ...]
    """The calls, each with tool, arguments and result."""
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        return asdict(self)


class SharedProvider:
    """A provider that several clients use one after another; only `close` closes it."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def info(self) -> ModelInfo:
        """The model's info."""
        return self._provider.info

    async def prepare(self) -> None:
        """Prepare the provider, if it has anything to prepare."""
        if isinstance(self._provider, Preparable):
            await self._provider.prepare()

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Generate a reply."""
        return self._provider.generate(request)

    async def aclose(self) -> None:
        """Keep the provider open for further clients."""

    async def close(self) -> None:
        """Close the provider."""
        await self._provider.aclose()


def judge(task: Task, turn: Turn, specs: Mapping[str, ToolSpec], tool_format: str, seconds: float) -> Outcome:
    """Judge a turn; `specs` are the offered tools."""
    calls = [
        (record.call.name, record.call.arguments, extract_text(record.result.content)) for record in turn.tool_calls
    ]
    right = _made(task, turn, specs)
    broken = {Failure.UNKNOWN_TOOL, Failure.BAD_ARGUMENTS}
    is_answer = turn.stop_reason is StopReason.ANSWERED and bool(turn.text.strip()) and not _MARKUP.search(turn.text)
    return Outcome(
        task=task.id,
        kind=task.kind.value,
        format=tool_format,
        tools=len(specs),
        well_formed=is_answer and not any(record.result.failure in broken for record in turn.tool_calls),
        right_tool=_has_tools(task, [name for name, _, _ in calls]),
        right_call=right == len(task.calls),
        right_answer=is_answer and says(task.answer, turn.text, [result for _, _, result in calls]),
        needless=len(calls) - right,
        seconds=round(seconds, 2),
        stop_reason=turn.stop_reason.value,
        calls=tuple((name, dict(args), result[:500]) for name, args, result in calls),
        text=turn.text,
    )


def _made(task: Task, turn: Turn, specs: Mapping[str, ToolSpec]) -> int:
    """Return the number of expected calls that were made, in order unless any order is allowed."""
    remaining = list(task.calls)
    for call in (record.call for record in turn.tool_calls):
        schema = specs[call.name].input_schema if call.name in specs else {}
        candidates = remaining if task.any_order else remaining[:1]
        if match := next((c for c in candidates if is_expected(c, call.name, call.arguments, schema)), None):
            remaining.remove(match)
    return len(task.calls) - len(remaining)


def _has_tools(task: Task, called: Sequence[str]) -> bool:
    expected = [call.tool for call in task.calls]
    if task.any_order:
        return not Counter(expected) - Counter(called)
    remaining = iter(called)
    return all(name in remaining for name in expected)


OnOutcome = Callable[[Outcome], None]


async def run_offer(
    offer: Offer, model: Provider, tool_format: str, servers: Mapping[str, Any], tell: OnOutcome
) -> None:
    """Run the tasks of an offer, one after another.

    Args:
        offer: The tools and the tasks.
        model: The model.
        tool_format: The tool format, as for `DialClient`.
        servers: The entries of the servers that have the tools.
        tell: Called with each outcome.

    Raises:
        RuntimeError: A tool is missing.
    """
    entries = {name: dict(entry) | {"enabledTools": sorted(offer.tools)} for name, entry in servers.items()}
    async with DialClient(model, servers=entries, tool_format=tool_format, limits=LIMITS) as dial:
        for task in offer.tasks:
            started_at = time.monotonic()
            turn = await dial.run([Message.user(task.question)])
            specs = {spec.name: spec for spec in dial.tools}
            if missing := offer.tools - specs.keys():
                raise RuntimeError(f"these tools are not offered: {', '.join(sorted(missing))}: {dial.notes}")
            tell(judge(task, turn, specs, tool_format, time.monotonic() - started_at))


async def run_offers(offers: Sequence[Offer], jobs: int, run: Callable[[Offer], Awaitable[None]]) -> None:
    """Run `jobs` offers at a time."""
    limiter = anyio.CapacityLimiter(jobs)

    async def run_limited(offer: Offer) -> None:
        async with limiter:
            await run(offer)

    async with anyio.create_task_group() as group:
        for offer in offers:
            group.start_soon(run_limited, offer)
