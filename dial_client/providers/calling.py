"""Tool calls for a model that has none of its own: a `Provider` around another one, held to a grammar.

The form is `local.object_form`'s, what may come next is up to `local.choosing`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from dial_client.local.choosing import Choosing, Step
from dial_client.local.object_form import ObjectReader
from dial_client.logs import get_logger
from dial_client.messages import Usage
from dial_client.model import CallChunk, Completion, Delta, FinishReason, ModelRequest, Provider, TextChunk

log = get_logger(__name__)


class CallingProvider:
    """Asks a model for calls and answers in a form of its own, and gives them as any other provider does.

    Args:
        model: can be held to a grammar; is closed with this one.
    """

    def __init__(self, model: Provider) -> None:
        self.name = model.name
        self._model = model

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model, and give its reply as it comes; it is asked again for a call that would get nowhere.

        Raises:
            ProviderError: as the model does.
        """
        if not request.tools:
            async with aclosing(self._model.generate(request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        choosing = Choosing(request, self.name)
        completion, usage = Completion(FinishReason.CUT), Usage()
        while (step := choosing.step) is not None:
            async with aclosing(self._asked(choosing, step)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Completion):
                        completion, usage = delta, usage + delta.usage
                    else:
                        yield delta
        completion = replace(completion, usage=usage)
        if choosing.call is not None:
            yield CallChunk(choosing.call)
            echo = {"then": choosing.then} if choosing.then else None
            completion = replace(completion, finish=FinishReason.TOOL_CALLS, echo=echo)
        yield completion

    async def _asked(self, choosing: Choosing, step: Step) -> AsyncGenerator[Delta, None]:
        """Take one step: give what is for people, and the completion."""
        reader = ObjectReader()
        finish = FinishReason.CUT
        async with aclosing(self._model.generate(choosing.request(step))) as deltas:
            async for delta in deltas:
                if isinstance(delta, Completion):
                    finish = delta.finish
                    if rest := reader.finish():
                        yield TextChunk(rest)
                    yield delta
                elif isinstance(delta, TextChunk):
                    if shown := reader.feed(delta.text):
                        yield TextChunk(shown)
                else:
                    yield delta
        choosing.take(reader.tool, reader.call() if finish is FinishReason.STOP else None)
        log.debug("step", tools=len(step.tools), tool=reader.tool, is_made=choosing.call is not None)

    async def aclose(self) -> None:
        """Let go of the model."""
        await self._model.aclose()
