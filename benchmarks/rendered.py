"""A streamed answer on a terminal: rendered Markdown, compared with the plain text of the same answer.

`python -m benchmarks.rendered` prints the CPU time of a piece in answers of 10,000 lines, with a draft at each piece.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.cases import Clock, Sample, Script, Sides
from benchmarks.endpoint import Endpoint
from benchmarks.server_entries import QUESTION
from dial_client import DialClient, Event, Message, TextDelta
from dial_client.cli.markdown.markdown_stream import MarkdownStream
from dial_client.cli.markdown.themes import DARK
from dial_client.sinks.terminal import TerminalSink

REFRESH = 0.05
"""Seconds between two drafts of the unfinished block, as on the screen."""
ROWS = 20
_DOCUMENT = """\
## What the records say

There are **three** records, and a [page](https://example.test/page) that `explains` them. The second one is longer than
the others, which is why it is wrapped.

- the first is *short*
- the second has a formula, $x_1^2 \\le \\frac{a}{b}$
  - and a part of its own

| record | words | state |
|:-------|------:|-------|
| first  |    12 | done  |
| second | 1,204 | a cell with **more** text than the others |

```python
def read(record: Record) -> str:
    \"\"\"Return the text of a record.\"\"\"
    return record.text.strip()  # without its margins
```

"""


def _pieces(count: int) -> list[str]:
    """Return a document in `count` pieces of four characters, the size of a token."""
    whole = _DOCUMENT * (4 * count // len(_DOCUMENT) + 1)
    return [whole[at : at + 4] for at in range(0, 4 * count, 4)]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Turns of the host that show the pieces of a document as Markdown; the floor shows them as plain text."""

    about: str
    script: Script

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open the client that both sides use."""
        async with DialClient("chat:x", base_url=self.script.url(endpoint)) as dial:
            yield {"floor": partial(self._sample, dial, _plain), "dial": partial(self._sample, dial, _rendered)}

    async def _sample(self, dial: DialClient, show_on: Callable[[], Callable[[Event], None]]) -> Sample:
        pieces = _pieces(self.script.chunks)
        with _silence():
            show, shown = show_on(), 0
            with Clock() as clock:
                async for event in dial.stream([Message.user(QUESTION)]):
                    if not isinstance(event, TextDelta):
                        show(event)
                        continue
                    # One read brings several words. Each is shown by itself, as with a model that takes its time.
                    words = len(event.text.split())
                    for piece in pieces[shown : shown + words]:
                        show(TextDelta(piece))
                    shown += words
        if shown != self.script.chunks:
            raise RuntimeError(f"{self.about}: the answer is not the scripted one")
        return clock.sample


@contextmanager
def _silence() -> Iterator[None]:
    with Path(os.devnull).open("w", encoding="utf-8") as null, redirect_stdout(null), redirect_stderr(null):
        yield


def _plain() -> Callable[[Event], None]:
    return TerminalSink().show


def _rendered() -> Callable[[Event], None]:
    """Return a function that shows events like the screen, except for drawing the live area."""
    stream = MarkdownStream(lambda: 100, DARK)
    drawn = 0.0

    def show(event: Event) -> None:
        nonlocal drawn
        if isinstance(event, TextDelta):
            print(stream.feed(event.text), end="", flush=True)
            if time.monotonic() - drawn > REFRESH:
                print(stream.draft(ROWS), end="", flush=True)
                drawn = time.monotonic()

    return show


def main() -> None:
    """Print the median, the 95th percentile and the maximum of the CPU time of a piece, in milliseconds."""
    lines = 10_000
    answers = {
        "document": _DOCUMENT * (lines // _DOCUMENT.count("\n")),
        "code": "```python\n" + "    value = compute(1, 'text')  # comment\n" * lines + "```\n",
        "nested list": "1. top\n" + "   - an item with **bold** words\n" * lines,
        "table": "| a | b |\n|---|---|\n" + "| a cell | words |\n" * lines,
    }
    for name, answer in answers.items():
        stream = MarkdownStream(lambda: 100, DARK)
        times = []
        for start in range(0, len(answer), 4):
            began = time.process_time()
            stream.feed(answer[start : start + 4])
            stream.draft(ROWS)
            times.append(1000 * (time.process_time() - began))
        times.sort()
        print(f"{name:12} {times[len(times) // 2]:7.2f} {times[int(0.95 * len(times))]:7.2f} {times[-1]:7.2f}")


if __name__ == "__main__":
    main()
