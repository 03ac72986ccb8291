"""A program that asks this host one question: ``python -m benchmarks.one_question direct|sdk BASE_URL CONFIG PROMPT``.

It imports only the modules that its way to the model needs.
"""

from __future__ import annotations

import asyncio
import sys

from dial_client import DialClient


async def answer(way: str, base_url: str, config: str, prompt: str) -> str:
    """Return the answer, requested with this host's own HTTP client, or through a client of `openai`."""
    if way == "direct":
        async with DialClient.from_config(config, model="chat:x", base_url=base_url) as dial:
            return (await dial.response(prompt)).text
    from openai import AsyncOpenAI

    from dial_client.extend import OpenAIProvider

    async with (
        AsyncOpenAI(base_url=base_url, api_key="none") as client,
        DialClient.from_config(config, model=OpenAIProvider(client, "x", api="chat")) as dial,
    ):
        return (await dial.response(prompt)).text


if __name__ == "__main__":
    print(asyncio.run(answer(*sys.argv[1:])))
