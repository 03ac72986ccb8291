"""Measures the overhead of this host over the embedded model's runtime: ``python -m evals.speed``.

The same weights in the same process answer each question twice, alternately: through `LocalProvider`, and without the
host, by one HTTP request with the prompt of the answer. Tokens a second are measured on the streamed answers, which
have one piece for each token. The time to the first text is also measured for two questions with eight tools before all
others, while their prompt is new to the runtime, and for one question after them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import httpx2

from dial_client.messages.message import Message, ToolSpec
from dial_client.messages.model import ModelRequest, ModelSettings, TextChunk
from dial_client.providers.embedded.answers import SYSTEM
from dial_client.providers.embedded.local_provider import LocalProvider
from dial_client.providers.http.endpoint import Endpoint
from evals import desk

QUESTIONS = (
    "Explain what a hash table is.",
    "Write a short story about a lighthouse.",
    "How does a bicycle stay upright?",
    "Write a Python function that merges two sorted lists.",
)
OFFERED = 8
MAX_TOKENS = 160
"""Tokens of an answer, enough to measure a rate."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """The timing of a streamed answer."""

    first_text: float
    """Seconds from the request to the first piece."""
    rate: float
    """Pieces a second after the first piece."""


async def _measure(pieces: AsyncIterator[str]) -> Streamed:
    started_at = time.monotonic()
    times = [time.monotonic() async for piece in pieces if piece]
    rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    return Streamed(times[0] - started_at if times else 0.0, rate)


async def _through_host(provider: LocalProvider, question: str, tools: tuple[ToolSpec, ...]) -> AsyncIterator[str]:
    request = ModelRequest(
        messages=(Message.user(question),), tools=tools, settings=ModelSettings(max_tokens=MAX_TOKENS)
    )
    async with aclosing(provider.generate(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextChunk):
                yield delta.text


async def _bare(endpoint: Endpoint, question: str) -> AsyncIterator[str]:
    conversation = (Message.system(SYSTEM), Message.user(question))
    messages = [{"role": message.role.value, "content": message.text} for message in conversation]
    body = {"messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS, "stream": True}
    async with (
        httpx2.AsyncClient(timeout=600.0, headers=dict(endpoint.headers)) as http,
        http.stream("POST", f"{endpoint.base_url}/chat/completions", json=body) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line.removeprefix("data: ")).get("choices")
                yield choices[0]["delta"].get("content") or "" if choices else ""


async def _tools() -> tuple[ToolSpec, ...]:
    listed = (await desk.server.list_tools())[:OFFERED]
    return tuple(ToolSpec(tool.name, tool.description or "", tool.input_schema) for tool in listed)


def _row(name: str, values: list[Streamed]) -> str:
    rate, first = (statistics.median(getattr(value, key) for value in values) for key in ("rate", "first_text"))
    return f"| {name:<28} | {rate:6.1f} | {first:6.2f} |"


async def main() -> None:
    """Ask both ways alternately, and print the medians and the ratio."""
    provider, tools = LocalProvider(), await _tools()
    try:
        await provider.prepare()
        assert provider.endpoint is not None
        first = await _measure(_through_host(provider, "Hello!", tools))
        second = await _measure(_through_host(provider, "Thank you!", tools))
        host: list[Streamed] = []
        bare: list[Streamed] = []
        for question in QUESTIONS:
            host.append(await _measure(_through_host(provider, question, tools)))
            bare.append(await _measure(_bare(provider.endpoint, question)))
        third = await _measure(_through_host(provider, "Good night!", tools))
    finally:
        await provider.aclose()
    print("| answers, tokens              | per s  | first s |")
    print("|------------------------------|--------|---------|")
    print(_row("through the host, 8 tools", host), _row("bare runtime", bare), sep="\n")
    ratio = statistics.median(
        with_host.rate / without_host.rate for with_host, without_host in zip(host, bare, strict=True)
    )
    print(f"\ntokens a second, ratio of host to bare runtime: {ratio:.2f}")
    print(f"first text of the first question: {first.first_text:.2f} s, of the second: {second.first_text:.2f} s")
    print(f"first text of a question after the others: {third.first_text:.2f} s")


if __name__ == "__main__":
    anyio.run(main)
