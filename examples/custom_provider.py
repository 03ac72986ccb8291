"""Use your own model: one async generator that yields the reply as it arrives."""

import asyncio
from collections.abc import AsyncGenerator

from dial_client import DialClient, ToolCallRequest
from dial_client.extend import CallChunk, Completion, Delta, FinishReason, ModelInfo, ModelRequest, TextChunk


class Parrot:
    """A model that counts the words with a tool, and repeats the question."""

    info = ModelInfo("parrot")

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        if last.role == "user":
            yield CallChunk(ToolCallRequest("call_1", "count_words", {"text": last.text}))
            yield Completion(FinishReason.TOOL_CALLS)
            return
        for word in f"{last.text} words: {request.messages[0].text}".split(" "):
            yield TextChunk(f"{word} ")
        yield Completion(FinishReason.STOP)

    async def aclose(self) -> None:
        """Close connections; this provider has none."""


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def main() -> None:
    async with DialClient(Parrot(), tools=[count_words]) as dial:
        print((await dial.run("Polly wants a cracker")).text)


asyncio.run(main())
