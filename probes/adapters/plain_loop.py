"""The floor: the shortest correct loop over the SDKs of MCP and of OpenAI (`benchmarks/floor.py`)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import floor


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open the model's client, and the servers at the same time."""
    async with floor.opened(base_url, "x", servers) as loop:

        async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
            messages = [*(history or ()), {"role": "user", "content": question}]
            if on_text is None:
                return await loop.run(messages), messages
            async for piece in loop.stream(messages):
                on_text(piece)
            return "", messages

        yield ask
