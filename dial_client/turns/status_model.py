"""A model that describes each running call in a sentence. No call waits for its sentence."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from dial_client.hooks.middleware import MiddlewareChain
from dial_client.messages.events import Emit, Event, StatusChanged, ToolCallFinished, ToolCallStarted
from dial_client.messages.message import Message, ToolCallRequest
from dial_client.messages.model import FinishReason, ModelInfo, ModelRequest, ModelSettings, Provider
from dial_client.messages.token_usage import Usage
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.turns.model_call import generate_text

log = get_logger(__name__)

MAX_TOKENS = 20
# Timeout of a request in seconds. If the model takes longer, the template's sentence stays.
TIMEOUT = 2.0
MAX_CHARS = 100
# Maximum concurrent requests, so that a round of many calls does not delay the turn's own requests.
_MAX_REQUESTS = 2
_MAX_ARGUMENT_CHARS = 400
_PROMPT = (
    "Say in one sentence of at most ten words what this tool call is doing, as the user sees it. "
    'Begin with a verb in the -ing form, as in "Looking up the weather in Paris". Give the sentence and nothing else.\n'
    "Tool: {name}\nArguments: {arguments}"
)

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False, slots=True)
class StatusModel:
    """Writes the status of the calls of one turn."""

    provider: Provider
    """Writes the sentences."""
    add_usage: Callable[[Usage, ModelInfo], None]
    """Receives the usage of each request, and the model that answered it."""
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    """Wraps each request."""

    async def narrate(self, run_calls: Callable[[Emit], Awaitable[Result]], emit: Emit) -> Result:
        """Run calls, and emit a sentence about each call it starts, unless the call ends first."""
        limiter = anyio.CapacityLimiter(_MAX_REQUESTS)
        running: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as group:

            async def emit_and_narrate(event: Event) -> None:
                await emit(event)
                if isinstance(event, ToolCallStarted):
                    scope = running[event.call.id] = anyio.CancelScope()
                    group.start_soon(self._narrate_call, event, scope, limiter, emit)
                elif isinstance(event, ToolCallFinished) and event.result.tool_call_id in running:
                    running.pop(event.result.tool_call_id).cancel()

            result = await run_calls(emit_and_narrate)
            group.cancel_scope.cancel()  # the sentences about ended calls are not needed
        return result

    async def _narrate_call(
        self, event: ToolCallStarted, scope: anyio.CancelScope, limiter: anyio.CapacityLimiter, emit: Emit
    ) -> None:
        with scope:
            async with limiter:
                sentence = await self._write_sentence(event.call, event.tool or event.call.name)
            if sentence:
                await emit(StatusChanged(sentence))

    async def _write_sentence(self, call: ToolCallRequest, tool: str) -> str:
        """Return a sentence about a call; empty if the model fails, or is too slow."""
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)[:_MAX_ARGUMENT_CHARS]
        prompt = Message.user(_PROMPT.format(name=tool, arguments=arguments))
        request = ModelRequest(
            (prompt,), settings=ModelSettings(max_tokens=MAX_TOKENS), stream=False, endpoint_tools=False
        )
        try:
            with anyio.move_on_after(TIMEOUT):
                reply = await generate_text(self.provider, request, self.middleware)
                self.add_usage(reply.usage, reply.info or self.provider.info)
                return "" if reply.finish is FinishReason.CUT else _to_sentence(reply.message.text)
        except Exception as error:  # noqa: BLE001 - a missing sentence must not end the turn
            log.debug("narration_failed", error=type(error).__name__)
        return ""


def _to_sentence(text: str) -> str:
    """Return the first line of a reply as a status; empty if it is too long, or has markup."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip().strip("\"'*`").strip()
    has_markup = any(char in line for char in "<>{}[]|")
    if not line or len(line) > MAX_CHARS or has_markup or not line.isprintable() or sanitize(line) != line:
        return ""
    return f"{line.rstrip('.…')}…"
