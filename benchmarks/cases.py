"""The cases to measure. A case prepares both sides, the floor and this host, and takes single samples of each side."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Self

from benchmarks.endpoint import Endpoint, answer_of
from benchmarks.server_entries import QUESTION, Servers, server_entries
from benchmarks.sides import Host, open_dial
from dial_client import ConversationManager, DialClient, Message, SQLStore, Turn

Sample = Mapping[str, float]
"""The values by metric; the last word of a metric's name is its unit."""
Measure = Callable[[], Awaitable[Sample]]
Sides = Mapping[str, Measure]
"""The functions that take one sample of ``floor`` and of ``dial``."""


class Case(Protocol):
    """One thing to measure."""

    @property
    def about(self) -> str:
        """The description for the table."""

    def prepared(self, endpoint: Endpoint) -> AbstractAsyncContextManager[Sides]:
        """Prepare both sides, and clean up on exit."""


@dataclass(frozen=True, slots=True)
class Script:
    """The model's behavior in a turn."""

    rounds: int
    calls: int = 1
    """Calls in each round."""
    chunks: int = 20
    """Words of the answer."""

    def url(self, endpoint: Endpoint) -> str:
        """Return the ``base_url`` of the model that plays the script."""
        return endpoint.url(self.rounds, self.calls, self.chunks)

    @property
    def answer(self) -> str:
        """The final text of a turn."""
        return answer_of(self.chunks)


@dataclass(frozen=True, slots=True)
class Turns:
    """Samples turns of a host whose servers are connected."""

    about: str
    script: Script
    servers: Servers = field(default_factory=server_entries)
    streamed: bool = False
    at_once: int = 1

    async def sample(self, host: Host) -> Sample:
        """Ask the question, and measure the turns."""
        ask = host.streamed if self.streamed else host.plain
        with Clock() as clock:
            answers = await asyncio.gather(*(ask() for _ in range(self.at_once)))
        if set(answers) != {self.script.answer}:
            raise RuntimeError(f"{self.about}: the answer is not the scripted one: {answers[0][:200]!r}")
        return clock.sample


@dataclass(frozen=True, slots=True)
class Format:
    """A streamed turn of the host in a text format, compared with the same turn in native mode."""

    about: str
    script: Script
    tool_format: str

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Connect both; native mode is the floor."""
        turns, url = Turns(self.about, self.script, streamed=True), self.script.url(endpoint)
        async with open_dial(url, turns.servers) as native, open_dial(url, turns.servers, self.tool_format) as text:
            yield {"floor": partial(turns.sample, native), "dial": partial(turns.sample, text)}


@dataclass(frozen=True, slots=True)
class Help:
    """``--help``, compared with a program that imports the two SDKs and does nothing."""

    about: str
    metrics: Mapping[str, str]

    @asynccontextmanager
    async def prepared(self, _: Endpoint) -> AsyncIterator[Sides]:
        """Yield the two sides."""
        imports = [sys.executable, "-c", "import mcp, openai; print('imported')"]
        yield {
            "floor": partial(run_child, imports, "imported", self.metrics),
            "dial": partial(run_child, [*dial_chat_command(), "--help"], "--base-url", self.metrics),
        }


@dataclass(frozen=True, slots=True)
class Kept:
    """Concurrent turns of many conversations with SQLite; the floor is the same turns without a store."""

    about: str
    script: Script
    at_once: int
    servers: Servers = field(default_factory=server_entries)

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open the client and the store."""
        async with _opened(self.script.url(endpoint), self.servers) as (dial, manager):
            yield {"floor": partial(self._unkept, dial), "dial": partial(self._kept, manager)}

    async def _unkept(self, dial: DialClient) -> Sample:
        with Clock() as clock:
            turns = await asyncio.gather(*(dial.run([Message.user(QUESTION)]) for _ in range(self.at_once)))
        self._check(turns)
        return clock.sample

    async def _kept(self, manager: ConversationManager) -> Sample:
        created = await asyncio.gather(*(manager.create() for _ in range(self.at_once)))
        with Clock() as clock:
            turns = await asyncio.gather(*(manager.chat(conversation.id, QUESTION) for conversation in created))
        self._check(turns)
        stored = await asyncio.gather(*(manager.get(conversation.id) for conversation in created))
        for conversation, turn in zip(stored, turns, strict=True):
            if conversation.messages != turn.messages:
                raise RuntimeError(f"{self.about}: the stored messages differ from the conversation's")
        return clock.sample

    def _check(self, turns: Sequence[Turn]) -> None:
        if any(turn.text != self.script.answer or turn.depth != self.script.rounds or turn.notes for turn in turns):
            raise RuntimeError(f"{self.about}: the answer is not the scripted one")


@dataclass(frozen=True, slots=True)
class Idle:
    """The memory of an idle conversation; the floor is a list of its messages."""

    about: str
    script: Script
    count: int
    servers: Servers = field(default_factory=server_entries)

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open the client and the store."""
        async with _opened(self.script.url(endpoint), self.servers) as (dial, manager):
            # What the first turn imports belongs to no conversation, and takes fifteen times as long while traced.
            await manager.chat((await manager.create()).id, QUESTION)
            yield {"floor": partial(self._listed, dial), "dial": partial(self._idle, manager)}

    async def _listed(self, dial: DialClient) -> Sample:
        with _Memory() as memory:
            turns = await asyncio.gather(*(dial.run([Message.user(QUESTION)]) for _ in range(self.count)))
            kept = [turn.messages for turn in turns]
            del turns
        if len(kept) != self.count:
            raise RuntimeError(f"{self.about}: a turn is missing")
        return {"held KiB": memory.kib / self.count}

    async def _idle(self, manager: ConversationManager) -> Sample:
        with _Memory() as memory:
            created = await asyncio.gather(*(manager.create() for _ in range(self.count)))
            await asyncio.gather(*(manager.chat(conversation.id, QUESTION) for conversation in created))
        return {"held KiB": memory.kib / self.count}


class Clock:
    """Measures the wall time of a block, and the CPU time of this process in it."""

    sample: Sample

    def __enter__(self) -> Self:
        gc.collect()
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        self.sample = {"wall ms": wall * 1000, "CPU ms": cpu * 1000}


class _Memory:
    """Measures the memory that a block allocates and does not free, at least one byte."""

    kib = 0.0

    def __enter__(self) -> Self:
        gc.collect()
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        gc.collect()
        self.kib = max(1, tracemalloc.get_traced_memory()[0]) / 1024
        tracemalloc.stop()


@asynccontextmanager
async def _opened(url: str, servers: Servers) -> AsyncIterator[tuple[DialClient, ConversationManager]]:
    with TemporaryDirectory() as folder:
        async with (
            DialClient("chat:x", servers=servers, base_url=url) as dial,
            aclosing(SQLStore.sqlite(Path(folder, "conversations.db"))) as store,
        ):
            await store.open()
            yield dial, ConversationManager(dial, store)


def write_config(folder: str, servers: Servers) -> str:
    path = Path(folder, "servers.json")
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return str(path)


async def run_child(argv: list[str], marker: str, metrics: Mapping[str, str]) -> Sample:
    meter = [sys.executable, "-I", "-S", str(Path(__file__).with_name("child.py")), marker]
    root = Path(__file__).parent.parent
    process = await asyncio.create_subprocess_exec(
        *meter, *argv, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    line, errors = await process.communicate()
    seen: dict[str, Any] = json.loads(line)
    if seen["code"] != 0 or seen["answer_ms"] is None:
        raise RuntimeError(f"{argv[0]} ended with {seen['code']}: {errors.decode(errors='replace')[-2000:]}")
    return {metric: seen[key] for key, metric in metrics.items() if seen[key] is not None}


def dial_chat_command() -> list[str]:
    """Return the command that starts this program."""
    script = shutil.which("dial-chat", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-m", "dial_client"]
