"""A server whose calls do several things, each with a word of the caller in it: ``python interleaved.py``."""

from __future__ import annotations

import warnings
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, ListRoots, Resolve, Sample
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

LIFETIME = 120.0
HARMLESS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
server = MCPServer("interleaved", log_level="CRITICAL")
stopped: list[str] = []


class Name(BaseModel):
    name: str


async def question(word: str) -> Elicit[Name]:
    return Elicit(f"{word}: who?", Name)


async def prompt(word: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(text=f"{word}: a word?"))], max_tokens=50)


async def folders() -> ListRoots:
    return ListRoots()


async def speak(context: Context, word: str) -> None:
    """Log and report progress, with the caller's word."""
    for step in (1, 2):
        await context.report_progress(step, 2, word)
        with warnings.catch_warnings(action="ignore"):
            await context.log("info" if step == 1 else "error", word)
        await anyio.lowlevel.checkpoint()


@server.tool(annotations=HARMLESS)
async def work(context: Context, word: str) -> str:
    """Say what the caller says."""
    await speak(context, word)
    return word


@server.tool(annotations=HARMLESS)
async def read(word: str) -> str:
    """Return what a stranger has written."""
    return word


@server.tool()
async def send(context: Context, word: str) -> str:
    """Send what the caller says to somebody."""
    await speak(context, word)
    return word


@server.tool(annotations=HARMLESS)
async def elicit(context: Context, word: str, answer: Annotated[ElicitationResult[Name], Resolve(question)]) -> str:
    """Ask the caller's person."""
    await speak(context, word)
    return f"{word} {answer.data.name if answer.action == 'accept' else answer.action}"


@server.tool(annotations=HARMLESS)
async def sample(context: Context, word: str, answer: Annotated[CreateMessageResult, Resolve(prompt)]) -> str:
    """Ask the caller's model."""
    await speak(context, word)
    return f"{word} {getattr(answer.content, 'text', None)}"


@server.tool(annotations=HARMLESS)
async def roots(context: Context, word: str, found: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """Ask for the caller's folders."""
    await speak(context, word)
    return f"{word} {' '.join(root.name or '' for root in found.roots)}"


@server.tool(annotations=HARMLESS)
async def wait(context: Context, word: str) -> str:
    """Report progress, then wait to be cancelled."""
    await context.report_progress(1, 2, word)
    try:
        await anyio.sleep(LIFETIME)
    finally:
        stopped.append(word)
    return "never"


@server.tool(annotations=HARMLESS)
async def list_stopped() -> list[str]:
    """Return the words of the calls that were cancelled."""
    return sorted(stopped)


if __name__ == "__main__":
    server.run()
