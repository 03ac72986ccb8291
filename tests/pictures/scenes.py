"""Runs of `dial-chat` for the pictures in docs/terminal; each scene yields the screen that the picture shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.model_endpoint import Answer, Call, Say, model_endpoint
from tests.support.program import write_config
from tests.support.screens import ScreenReader, screen

SERVERS = Path(__file__).with_name("trip_servers.py")
TYPING, READING = 0.04, 2.2
"""Seconds that the simulated person takes to type a key, and to read a question."""
QUESTION = "Please compare three cities"
COMPARISON = """# Three cities

| city | Monday | Tuesday | what to take |
|:--|--:|--:|:--|
| Berlin | 12 °C | 14 °C | an umbrella, because it rains in the evening |
| São Paulo | 24 °C | 26 °C | sun cream |
| 東京 | 18 °C | 17 °C | nothing special |

The mean is $\\bar{x} = (12 + 24 + 18)/3 = 18$ °C. To compute it:

```python
def mean(values: list[float]) -> float:
    \"\"\"Return the arithmetic mean.\"\"\"
    return sum(values) / len(values)  # 18.0
```

- [x] forecasts compared
- [ ] bags packed: see [the list](https://example.com/list)

> The station on the Zugspitze did not answer.
"""
CALLS = (
    Call("read_station", {"name": "Zugspitze"}, "call_1"),
    Call("get_forecast", {"city": "Berlin"}, "call_2"),
    Call("get_forecast", {"city": "São Paulo", "days": 2}, "call_3"),
    Call("get_forecast", {"city": "東京"}, "call_4"),
)
COMPARED = (Say("", CALLS, usage=(1_480, 96)), Say(COMPARISON, usage=(2_099, 184), pieces=40))


def entry(name: str, **settings: Any) -> dict[str, Any]:
    """Return the configuration of a server in `trip_servers`."""
    return {"command": sys.executable, "args": ["-W", "ignore", str(SERVERS), name], **settings}


@contextmanager
def _trip(
    folder: Path, answers: tuple[Answer, ...], *words: str, columns: int = 90, rows: int = 44, servers: Any = None
) -> Iterator[ScreenReader]:
    """Yield the screen of `dial-chat` in a folder with a model endpoint and servers."""
    trip = folder / "trip"
    trip.mkdir()
    (trip / "notes.md").write_text("# Trip\n\n- umbrella\n- coat\n", encoding="utf-8")
    with model_endpoint(answers) as endpoint:
        model = {"api": "chat", "base_url": f"{endpoint.url}/v1", "model": "qwen3"}
        entries = servers or {"weather": entry("weather", autoApprove=["*"]), "files": entry("files")}
        write_config(trip, entries, models={"qwen3": model}, defaultModel="qwen3")
        with screen(trip, "--no-save", *words, columns=columns, rows=rows, HOME=str(folder)) as person:
            yield person


@contextmanager
def answer(folder: Path, columns: int = 90) -> Iterator[ScreenReader]:
    """A comparison of three cities: tool calls with the first lines of their results, a table, a formula, code."""
    with _trip(folder, COMPARED, columns=columns, rows=60) as person:
        person.until("tools available")
        person.until_last(">")
        person.type(f"{QUESTION}\r")
        person.until("2 rounds")
        person.until_last(">")
        yield person


@contextmanager
def narrow(folder: Path) -> Iterator[ScreenReader]:
    """The same answer in 60 columns."""
    with answer(folder, columns=60) as person:
        yield person


@contextmanager
def commands(folder: Path) -> Iterator[ScreenReader]:
    """The commands that are proposed after a slash."""
    with _trip(folder, (Say("The coat stays at home."),), rows=24) as person:
        person.until("tools available")
        person.until_last(">")
        person.type("/")
        person.until("/undo")
        yield person


@contextmanager
def calls(folder: Path) -> Iterator[ScreenReader]:
    """Two calls, one with a progress bar, and a queued message."""
    radar = Call("download_radar", {"region": "Brandenburg"}, "call_2")
    with _trip(folder, (Say("", (CALLS[1], radar)),), rows=24) as person:
        person.until("tools available")
        person.until_last(">")
        person.type("Get the radar pictures\r")
        person.until("tile 13.png")
        person.type("And then compare the cities\r")
        person.until("queued: And then")
        yield person


@contextmanager
def approval(folder: Path) -> Iterator[ScreenReader]:
    """An approval request with the arguments of the call."""
    content = "# Trip\n\n- umbrella\n- sun cream\n- sandals, because it will be 東京-warm\n"
    call = Call("write_file", {"path": "notes.md", "content": content})
    with _trip(folder, (Say("", (call,)),), "Write a note about sun cream", rows=24, columns=80) as person:
        person.until("q stop")
        yield person


@contextmanager
def start_up(folder: Path) -> Iterator[ScreenReader]:
    """A message that waits for a starting server, and a failed server."""
    servers = {
        "weather": entry("weather"),
        "files": entry("files"),
        "archive": entry("slow"),
        "maps": {"command": sys.executable, "args": ["-c", "raise SystemExit('there is no API key')"]},
    }
    with _trip(folder, COMPARED, rows=16, servers=servers) as person:
        person.until("qwen3")
        person.type("Compare the cities\r")
        person.until("2 ready, 1 failed, starting: archive")
        person.until("press Enter to continue without them")
        yield person


PACKED = """| city | Monday | to take |
|:--|--:|:--|
| Berlin | 12 °C | an umbrella |
| Lisbon | 18 °C | sandals |

Both are in `notes.md`."""


@contextmanager
def packing(folder: Path) -> Iterator[ScreenReader]:
    """A question, typed key by key: two calls at once, a call that needs approval, and the answer."""
    forecasts = tuple(Call("get_forecast", {"city": city}, f"call_{city}") for city in ("Berlin", "Lisbon"))
    write = Call("write_file", {"path": "notes.md", "content": "# Trip\n\n- umbrella\n- sandals\n"}, "call_write")
    answers = (Say("", forecasts), Say("", (write,)), Say(PACKED, usage=(2_099, 184), pieces=30))
    with _trip(folder, answers, columns=84, rows=32) as person:
        person.until("tools available")
        person.until_last(">")
        question = "What do I take to Berlin and Lisbon? Note it in notes.md"
        for end, key in enumerate(question, 1):
            person.type(key)
            person.until(question[:end].rstrip())
            time.sleep(TYPING)
        time.sleep(READING / 2)
        person.type("\r")
        person.until("q stop")
        time.sleep(READING)
        person.type("y")
        person.until("3 rounds")
        person.until_last(">")
        yield person


SCENES: Mapping[str, Callable[[Path], Any]] = {
    "answer": answer,
    "approval": approval,
    "calls": calls,
    "commands": commands,
    "narrow": narrow,
    "packing": packing,
    "start-up": start_up,
}
ANIMATED = {"packing"}
"""Scenes with an animated picture of the whole run."""
