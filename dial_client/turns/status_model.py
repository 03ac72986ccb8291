"""A model says in a sentence what a running call does: beside the call, and never in its way."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

import anyio

from dial_client.events import Emit, Event, StatusChanged, ToolCallFinished, ToolCallStarted
from dial_client.logs import get_logger
from dial_client.messages import Message, ToolCallRequest, Usage
from dial_client.model import Completion, ModelRequest, Provider, TextChunk
from dial_client.text.safe_text import safe

log = get_logger(__name__)

MAX_TOKENS = 20
TIMEOUT = 2.0
"""Seconds; where it takes longer, the template's sentence stays."""
MAX_CHARS = 100
_AT_ONCE = 2
"""Sentences asked for at the same time: a round of many calls must not crowd out the turn's own requests."""
_MAX_ARGUMENT_CHARS = 400
_PROMPT = (
    "Say in one sentence of at most ten words what this tool call is doing, as the user sees it. "
    'Begin with a verb in the -ing form, as in "Looking up the weather in Paris". Give the sentence and nothing else.\n'
    "Tool: {name}\nArguments: {arguments}"
)

Done = TypeVar("Done")


class StatusModel:
    """Words the status of the calls of one turn.

    Args:
        provider: is asked for the sentences.
        used: is told what each of them took.
    """

    def __init__(self, provider: Provider, used: Callable[[Usage], None]) -> None:
        self._provider = provider
        self._used = used

    async def beside(self, work: Callable[[Emit], Awaitable[Done]], emit: Emit) -> Done:
        """Do the work, which runs calls, and narrate each call for as long as it runs; the work waits for nothing."""
        places = anyio.CapacityLimiter(_AT_ONCE)
        running: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as group:

            async def narrated(event: Event) -> None:
                await emit(event)
                if isinstance(event, ToolCallStarted):
                    scope = running[event.call.id] = anyio.CancelScope()
                    group.start_soon(self._narrate, event, scope, places, emit)
                elif isinstance(event, ToolCallFinished) and event.result.tool_call_id in running:
                    running.pop(event.result.tool_call_id).cancel()

            done = await work(narrated)
            group.cancel_scope.cancel()
        return done

    async def _narrate(
        self, event: ToolCallStarted, scope: anyio.CancelScope, places: anyio.CapacityLimiter, emit: Emit
    ) -> None:
        with scope:
            async with places:
                sentence = await self._sentence(event.call, event.tool or event.call.name)
            if sentence:
                await emit(StatusChanged(sentence))

    async def _sentence(self, call: ToolCallRequest, tool: str) -> str:
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)[:_MAX_ARGUMENT_CHARS]
        prompt = Message.user(_PROMPT.format(name=tool, arguments=arguments))
        said: list[str] = []
        try:
            with anyio.move_on_after(TIMEOUT):
                request = ModelRequest((prompt,), stream=False, max_tokens=MAX_TOKENS)
                async with aclosing(self._provider.generate(request)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, TextChunk):
                            said.append(delta.text)
                        elif isinstance(delta, Completion):
                            self._used(delta.usage)
                            return _one_sentence("".join(said))
        except Exception as error:  # noqa: BLE001 - a sentence is never worth a turn
            log.debug("narration_failed", error=type(error).__name__)
        return ""


def _one_sentence(text: str) -> str:
    """Give the first line, if it can be a sentence: no markup, no more than a line."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip().strip("\"'*`").strip()
    if (
        not line
        or len(line) > MAX_CHARS
        or any(char in line for char in "<>{}[]|")
        or not line.isprintable()
        or safe(line) != line
    ):
        return ""
    return f"{line.rstrip('.…')}…"
