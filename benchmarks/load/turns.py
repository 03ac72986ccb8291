"""Turns that clients ask for: at a fixed rate, whether or not earlier ones have ended, or a fixed number at a time."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.load.http_client import ConnectionLost, HttpClient, Response
from benchmarks.load.service import TOKEN, Service

WORDS = 20
"""Words of an answer, each an event."""
LONG = 120.0
"""Seconds for a turn. Its client then has no answer, which is reported."""
CREATED_AT_ONCE = 16


@dataclass(slots=True)
class Asked:
    """A turn that a client has asked for, and what the client got."""

    conversation: str
    key: str
    """The text of the question, and of the call's argument."""
    due: float
    """When the client was to ask, in seconds of the loop. Waiting times count from here, not from when it could ask."""
    response: Response = field(default_factory=Response)
    ending: str = ""
    """``answered``, ``error`` (an event), ``refused`` (a status), ``broken``, ``unreachable`` or ``late``."""
    error: str = ""

    @property
    def has_answer(self) -> bool:
        """Whether the stream has the whole answer."""
        return self.ending == "answered"

    @property
    def text(self) -> str:
        """The text of the stream so far."""
        found = re.findall(rb"^data: (\{.*)$", bytes(self.response.body), re.MULTILINE)
        choices = [choice for line in found for choice in json.loads(line).get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    @property
    def first_byte(self) -> float:
        """Seconds to the first byte."""
        return self.response.times[0] - self.due

    @property
    def gaps(self) -> list[float]:
        """Seconds from each event to the next, of those after the head."""
        times = [
            moment
            for moment, events in zip(self.response.times[1:], self.response.events[1:], strict=True)
            for _ in range(events)
        ]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


class Clients:
    """The clients of a service.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http = HttpClient(TOKEN)
        self.asked: list[Asked] = []
        self.answered = 0
        self._numbers = itertools.count()

    async def create_conversations(self, count: int) -> None:
        """Create conversations, and keep their ids with the service."""
        places, ports = asyncio.Semaphore(CREATED_AT_ONCE), itertools.cycle(self.service.ports)

        async def create() -> str:
            async with places:
                response = await self.http.request(next(ports), "POST", "/conversations", {})
                return str(response.json()["id"])

        self.service.conversations += await asyncio.gather(*(create() for _ in range(count)))

    async def ask(self, due: float, *, words: int = WORDS, cut_after: int = 0) -> Asked:
        """Ask for a turn of the next conversation at the next process, and wait for its end.

        A process that cannot be reached is passed over once, as a proxy does. After `cut_after` events, if not 0, the
        connection breaks, and the client reads on at the next process.
        """
        number, conversations, ports = next(self._numbers), self.service.conversations, self.service.ports
        key = f"Question {number}: what is known in {words} words?"
        asked = Asked(conversations[number % len(conversations)], key, due)
        self.asked.append(asked)
        start = number % len(ports)
        for port in (ports[start], ports[start - 1]):
            await self._read(asked, port, cut_after)
            if asked.ending != "unreachable":
                break
        if cut_after and asked.ending == "broken":
            await self._read_on(asked, ports[start - 1])
        self.answered += asked.has_answer
        return asked

    async def _read(self, asked: Asked, port: int, cut_after: int) -> None:
        path, body = f"/conversations/{asked.conversation}/chat", {"text": asked.key}
        try:
            await self.http.request(
                port, "POST", path, body, response=asked.response, cut_after=cut_after, seconds=LONG
            )
        except ConnectionLost as lost:
            asked.ending = "broken" if lost.has_sent else "unreachable"
        except TimeoutError:
            asked.ending = "late"
        else:
            _judge(asked)

    async def _read_on(self, asked: Asked, port: int) -> None:
        """Read the rest of a turn's stream after the last event that has arrived whole."""
        turn = asked.response.header("x-turn-id")
        whole = asked.response.body.rpartition(b"\n\n")[0]
        last = re.findall(rb"^id: (.*)$", whole, re.MULTILINE)
        after = f"last-event-id: {last[-1].decode()}\r\n" if last else ""
        path = f"/conversations/{asked.conversation}/turns/{turn}/events"
        asked.response.body[:] = whole + b"\n\n"
        rest = Response()
        try:
            await self.http.request(port, "GET", path, headers=after, response=rest, seconds=LONG)
        except (ConnectionLost, TimeoutError):
            return
        asked.response.body += rest.body
        asked.response.head = rest.head
        _judge(asked)

    async def ask_at_rate(self, rate: float, seconds: float) -> list[Asked]:
        """Ask for `rate` turns a second, whether or not earlier ones have ended; return them when all have ended."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(round(rate * seconds)):
                due = began + number / rate
                await asyncio.sleep(due - loop.time())
                tasks.append(group.create_task(self.ask(due)))
        return [task.result() for task in tasks]

    @asynccontextmanager
    async def busy(self, workers: int) -> AsyncIterator[None]:
        """Within the context, `workers` clients ask for a turn as soon as their last one has ended."""
        loop, is_over = asyncio.get_running_loop(), False

        async def work() -> None:
            while not is_over:
                await self.ask(loop.time())

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
            try:
                yield
            finally:
                is_over = True


def _judge(asked: Asked) -> None:
    """Note how a response has ended."""
    content = bytes(asked.response.body)
    if asked.response.status != 200:
        asked.ending, asked.error = "refused", content.decode(errors="replace")
    elif found := re.search(rb"event: error\ndata: (.*)", content):
        asked.ending, asked.error = "error", found[1].decode(errors="replace")
    else:
        asked.ending = "answered" if b"data: [DONE]" in content else "broken"
