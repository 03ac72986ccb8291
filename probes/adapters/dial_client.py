"""This library, with its default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dial_client import DialClient, Finished, Message, TextDelta


@asynccontextmanager
async def open_host(base_url: str, servers: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open the client; nobody is there to approve calls, so the entries allow them."""
    entries = {name: {**entry, "autoApprove": ["*"]} for name, entry in servers.items()}
    async with DialClient("chat:x", base_url=base_url, servers=entries) as dial:

        async def ask(question: str, history: Any, on_text: Any) -> tuple[str, Any]:
            messages = [*(history or ()), Message.user(question)]
            if on_text is None:
                turn = await dial.run(messages)
            else:
                async for event in dial.stream(messages):
                    match event:
                        case TextDelta(piece):
                            on_text(piece)
                        case Finished(turn):
                            pass
            return turn.text, turn.messages

        yield ask
