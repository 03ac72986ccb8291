"""Runs an adapter in the Python of its host, with the standard library: ``PYTHON adapter_runner.py ADAPTER.py``.

It reads a command from each line of standard input, and writes a line for each command that is done:

    {"id": 1, "open": {"base_url": "http://127.0.0.1:…/v1", "servers": {NAME: {"command", "args"}}}}
    {"id": 2, "ask": "QUESTION", "conversation": "a", "stream": false}
    {"id": 3, "cancel": 2}
    {"id": 4, "close": true}

A done command is ``{"id"}``, with ``"text"`` and ``"pieces"`` (the number of streamed pieces) for an answer, or with
``"error"``, the type and the text of an exception. A host in another language is probed by a program that speaks these
lines. Commands do not wait for each other; the program ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

OnText = Callable[[str], None] | None
Ask = Callable[[str, Any, OnText], Awaitable[tuple[str, Any]]]
"""Asks a question after a history (None at first), and returns the answer and the new history; `OnText` gets pieces."""
OpenHost = Callable[[str, Mapping[str, Any]], AbstractAsyncContextManager[Ask]]
"""An adapter's ``open_host(base_url, servers)``."""


class AdapterRunner:
    """Carries out the commands for one adapter."""

    def __init__(self, open_host: OpenHost, write: Callable[[dict[str, Any]], None]) -> None:
        self._open_host = open_host
        self._write = write
        self._histories: dict[str, Any] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()
        self._host: asyncio.Task[None] | None = None
        self._ask: Ask | None = None

    async def run(self, commands: AsyncIterator[dict[str, Any]]) -> None:
        """Carry out the commands until there are no more; an open host is closed."""
        async for command in commands:
            if "cancel" in command:
                if (running := self._running.get(command["cancel"])) is not None:
                    running.cancel()
                self._write({"id": command["id"]})
            elif "open" in command:
                self._closing = asyncio.Event()
                self._host = asyncio.create_task(self._keep_open(command))
            elif "ask" in command:
                task = asyncio.create_task(self._answer(command))
                self._running[command["id"]] = task
            else:
                await self._close()
                self._write({"id": command["id"]})
        await self._close()

    async def _close(self) -> None:
        for task in self._running.values():
            task.cancel()
        self._closing.set()
        if self._host is not None:
            if self._ask is None:  # it is still starting
                self._host.cancel()
            await asyncio.wait([self._host])
            self._host = None
        self._histories.clear()
        self._running.clear()

    async def _keep_open(self, command: dict[str, Any]) -> None:
        # One task opens and closes the host: cancel scopes must not be left in another task.
        opened = False
        try:
            settings = command["open"]
            async with self._open_host(settings["base_url"], settings["servers"]) as self._ask:
                opened = True
                self._write({"id": command["id"]})
                await self._closing.wait()
        except BaseException as error:  # noqa: BLE001 - also SystemExit of a host is a finding
            if not opened:
                self._write({"id": command["id"], "error": _describe(error)})
        finally:
            self._ask = None

    async def _answer(self, command: dict[str, Any]) -> None:
        pieces: list[str] = []
        conversation = command.get("conversation", "")
        try:
            assert self._ask is not None, "the host is not open"
            history = self._histories.get(conversation)
            on_text = pieces.append if command.get("stream") else None
            text, self._histories[conversation] = await self._ask(command["ask"], history, on_text)
            self._write({"id": command["id"], "text": text or "".join(pieces), "pieces": len(pieces)})
        except BaseException as error:  # noqa: BLE001 - also SystemExit of a host is a finding
            self._write({"id": command["id"], "error": _describe(error), "text": "".join(pieces)})


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def main() -> None:
    """Run the adapter that the command line names."""
    # Standard output belongs to the answers alone: what hosts print goes to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    open_host = runpy.run_path(sys.argv[1])["open_host"]

    async def run() -> None:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes] = asyncio.Queue()

        def read() -> None:
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

        async def commands() -> AsyncIterator[dict[str, Any]]:
            while line := await lines.get():
                yield json.loads(line)

        threading.Thread(target=read, daemon=True).start()
        runner = AdapterRunner(open_host, lambda answer: print(json.dumps(answer), file=answers))
        await runner.run(commands())

    asyncio.run(run())


if __name__ == "__main__":
    main()
