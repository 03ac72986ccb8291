"""Requests for a text outside of a turn's own exchanges: for sampling, the status of calls, and summaries."""

from __future__ import annotations

from contextlib import aclosing

from dial_client.hooks.middleware import MiddlewareChain, ModelReply
from dial_client.messages.message import Message
from dial_client.messages.model import Completion, FinishReason, ModelRequest, Provider, TextChunk


async def generate_text(
    provider: Provider, request: ModelRequest, middleware: MiddlewareChain | None = None
) -> ModelReply:
    """Return the reply to a request without tools, with its text as the endpoint sent it.

    Raises:
        ProviderError: The endpoint could not be reached, refused the request, or broke off.
        MiddlewareError: A middleware failed.
    """

    async def send(request: ModelRequest) -> ModelReply:
        text: list[str] = []
        completion = Completion(FinishReason.CUT)
        async with aclosing(provider.generate(request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextChunk):
                    text.append(delta.text)
                elif isinstance(delta, Completion):
                    completion = delta
        message = Message.assistant("".join(text))
        return ModelReply(
            message=message, finish=completion.finish, usage=completion.usage, info=completion.info or provider.info
        )

    if middleware is None or not middleware.wraps_model_calls:
        return await send(request)
    return await middleware.ask_model(request, provider.info, send)
