"""The overhead of a vendor's client: this host with a client of `openai`, compared with its own HTTP client."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.cases import Script, Sides, Turns, run_child, write_config
from benchmarks.endpoint import Endpoint
from benchmarks.server_entries import QUESTION, Servers, server_entries
from benchmarks.sides import open_dial, open_dial_through_sdk


@dataclass(frozen=True, slots=True)
class SdkTurns:
    """Streamed turns through the vendor's client; the floor is the host's own HTTP client."""

    about: str
    script: Script
    servers: Servers = field(default_factory=server_entries)

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Connect both."""
        turns, url = Turns(self.about, self.script, streamed=True), self.script.url(endpoint)
        async with open_dial(url, self.servers) as direct, open_dial_through_sdk(url, self.servers) as through_sdk:
            yield {"floor": partial(turns.sample, direct), "dial": partial(turns.sample, through_sdk)}


@dataclass(frozen=True, slots=True)
class SdkStart:
    """A program from its start to its answer with the vendor's client; the floor is the host's own HTTP client."""

    about: str
    script: Script
    metrics: dict[str, str]
    servers: Servers = field(default_factory=partial(server_entries, 2))

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Write the configuration that both sides read."""
        url = self.script.url(endpoint)
        with TemporaryDirectory() as folder:
            config = write_config(folder, self.servers)
            program = [sys.executable, "-m", "benchmarks.one_question"]
            yield {
                side: partial(run_child, [*program, way, url, config, QUESTION], self.script.answer, self.metrics)
                for side, way in (("floor", "direct"), ("dial", "sdk"))
            }
