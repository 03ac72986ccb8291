"""Every state of a conversation at several widths and in several terminals, compared with the files in `screens/`.

``DIAL_TEST_WRITE_SCREENS=1 pytest tests/e2e/test_screen_states.py`` writes the files again; review the changes.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dial_client import __version__
from tests.inner import QUIET, live_area
from tests.support.program import entry, write_config
from tests.support.screens import COLOURS, ScreenReader, screen

SCREENS = Path(__file__).with_name("screens")
WIDTHS = (200, 80, 60)
MODES: dict[str, dict[str, str]] = {
    "screen": {"DIAL_TEST_FRESH": "1"},
    "no-colour": {"NO_COLOR": "1"},
    "plain": {"NO_COLOR": "1"},
    "dumb": {"TERM": "dumb"},
}
BROKEN = {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit('there is no key for the maps')"]}
TABLE = """| city | weather |
|:--|:--|
| Berlin | clouds, and later some rain in the evening, but not in all parts of the city |
| 東京 | 18 °C |
"""
PROSE = "An **umbrella** is enough for a day like this, and a coat may stay at home, unless the evening gets long."
ANSWER = f"# Weather\n\n{TABLE}\n{PROSE}\n\n- [x] packed\n\n```python\nprint('umbrella')\n```\n"
ECHO = {"name": "open__echo", "arguments": {"city": "Berlin"}}
SLOW_WORDS = (
    "The station at the top of the mountain is measuring, and that takes a while, as there is snow on all of it."
)
WRITES = [
    {"name": "closed__echo", "arguments": {"path": "notes.txt", "content": "one\n日本\n"}},
    {"name": "closed__echo", "arguments": {"text": f"{SLOW_WORDS}\nsecond line", "number": 7}},
]
FAILURE = "The model is overloaded, and this sentence of its provider is longer than most of the screens are wide."
SPINNER = re.compile(f"[{live_area.SPINNER}]")
LONG_QUESTION = "How is the weather in the cities that I named when we talked about my journey to the other side?"
QUEUED = ("first", "second", "a third message that is kept in the queue until the answer is complete", "4th")
REPLIES: list[Any] = [
    {"tool_calls": [ECHO]},
    {"text": ANSWER, "chunk_size": 5, "usage": {"input_tokens": 1200, "output_tokens": 34}},
    {"tool_calls": WRITES},
    "Noted.",
    {"error": {"message": FAILURE, "status": 400}},
    {"text": PROSE, "hang": True},
]


class Recorder:
    """A user who types, waits, and records the rows of the screen."""

    def __init__(self, person: ScreenReader, *, is_drawn: bool) -> None:
        self.person, self.is_drawn = person, is_drawn
        self.states: list[str] = []
        self._question = ""

    def wait_for_prompt(self) -> None:
        """Wait until the last row is an empty input line, and no turn runs."""

        def is_idle() -> bool:
            lines = self.person.lines
            return lines[-1:] == [">"] and not any(line.endswith((" Esc stops", " Ctrl-C stops")) for line in lines)

        self.person.until_true(is_idle, "no prompt")

    def wait_for_servers(self, *, is_announced: bool) -> None:
        """Wait until all servers have started or failed; send lines if that is announced only after a line."""
        self.wait_for_prompt()
        while "no key for the maps" not in self.person.text or "2 tools available" not in self.person.text:
            if is_announced:
                self.person.until("2 tools available")
                self.person.until("no key for the maps")
            else:
                answered = self.person.text.count("There is no command")
                self.person.type("/nothing\r")
                self.person.until("There is no command", answered + 1)
            self.wait_for_prompt()

    def wait_for_question(self, text: str, count: int = 1) -> None:
        """Wait until the last row, with the cursor, is the prompt, for the `count`-th time in this turn."""

        def is_asked() -> bool:
            prompts = [row for row in self.rows() if row.startswith(text)]
            return len(prompts) == count and prompts[-1] == self.person.lines[-1] and prompts[-1][-1] in "?:"

        self.person.until_true(is_asked, f"{text!r} is not the last row")
        assert self.person.cursor_row == len(self.person.lines) - 1

    def ask(self, question: str) -> None:
        """Send a message that begins with the width of the screen."""
        self._question = f"{self.person.size[0]}: {question}"
        self.person.type(f"{self._question}\r")

    def rows(self) -> list[str]:
        """Return the rows since the latest message."""
        rows = self.person.recent(60).splitlines()
        begins = (at for at, row in enumerate(rows) if row.startswith(f"> {self._question[:20]}"))
        return rows[next(begins, len(rows)) :]

    def note(self, state: str) -> None:
        """Record the rows since the latest message as a state."""
        self.states.append("\n".join([f"=== {state}", *self.rows()]))


@pytest.mark.once
@pytest.mark.parametrize("mode", MODES)
def test_every_state_equals_its_reviewed_screen(tmp_path: Path, mode: str) -> None:
    trip = tmp_path / "trip"
    trip.mkdir()
    (trip / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    servers = {"open": entry("Server", autoApprove=["*"]), "closed": entry("Server"), "maps": BROKEN}
    write_config(trip, servers, REPLIES * len(WIDTHS))
    home = {"HOME": str(tmp_path), "PROMPT_TOOLKIT_NO_CPR": "1"}
    options = ("--plain",) if mode == "plain" else ()
    with screen(trip, "--no-save", *options, columns=WIDTHS[0], rows=50, **(home | MODES[mode])) as person:
        recorder = Recorder(person, is_drawn=mode in ("screen", "no-colour"))
        recorder.wait_for_servers(is_announced=mode != "dumb")
        recorder.states.append("\n".join(person.text.splitlines()[: 2 if mode == "dumb" else 4]))
        for columns in WIDTHS:
            person.resize(columns, 50)
            recorder.wait_for_prompt()
            walk(recorder)
            # Without colours, the same text is in the same place.
            compare(f"{'screen' if mode == 'no-colour' else mode}-{columns}", "\n".join(recorder.states))
            recorder.states = []
        person.type("\x04")
        assert person.leave() == 0
        assert person.is_echoing()
    assert re.search(r"\n9 answers: 3,600 tokens in, 102 out · [\d.]+ s$", person.text)
    assert "Esc stops" not in person.text, "nothing of the live area stays"
    raw = re.sub(rb"^\| .*|^The model.*", b"", person.raw, flags=re.MULTILINE)
    assert mode != "dumb" or b"\x1b" not in raw
    styles = set(re.findall(rb"\x1b\[([0-9;]*)m", raw))
    assert (styles <= {b"", b"0"}) is not recorder.is_drawn, "lines have no styles"
    assert (COLOURS.search(raw) is not None) is (mode == "screen")
    if recorder.is_drawn:
        assert person.overrun == [], "nothing is wider than the screen, and words are whole"


def walk(recorder: Recorder) -> None:
    """Bring the conversation into every state, one after another."""
    person = recorder.person
    recorder.ask(LONG_QUESTION)
    person.until_true(lambda: any("34 out · " in row for row in recorder.rows()), "no usage")
    recorder.wait_for_prompt()
    recorder.note("a call and an answer")
    recorder.ask("Note it")
    decide(recorder)
    recorder.note("two calls were decided")
    recorder.ask("Again")
    person.until_true(lambda: any("wide" in row for row in recorder.rows()), "no failure")
    recorder.wait_for_prompt()
    recorder.note("the model failed")
    recorder.ask("Go on")
    person.until_true(lambda: any("gets long." in row for row in recorder.rows()), "nothing streams")
    if recorder.is_drawn:
        for message in QUEUED:
            person.type(f"{message}\r")
            person.until(f"queued: {message[:20]}" if message != "4th" else "1 more queued")
        recorder.note("an answer streams, messages are queued")
        for _ in range(4):
            person.type("\x1b[A\x15")
        person.until_gone("queued")
    interrupt(recorder)
    recorder.note("the answer was interrupted")


def decide(recorder: Recorder) -> None:
    """Deny the second of two calls with a reason, and approve the first."""
    person = recorder.person
    if not recorder.is_drawn:
        recorder.wait_for_question("Run all 2")
        recorder.note("two calls wait for approval")
        person.type("2\r")
        recorder.wait_for_question("Run echo of closed?")
        recorder.note("one of them is asked about alone")
        person.type("no, it is Sunday\r")
        recorder.wait_for_question("Run echo of closed?", 2)
        person.type("y\r")
    else:
        wait_for_box(recorder, "2 calls to decide")
        shown = time.monotonic()
        # A key right after the box appears is ignored.
        person.until_true(lambda: time.monotonic() - shown > QUIET, "time stands still")
        recorder.note("two calls wait for approval")
        person.type("2")
        wait_for_box(recorder, "number  7")
        recorder.note("one of them is asked about alone")
        person.type("n")
        recorder.wait_for_question("No, because")
        person.type("it is Sunday\r")
        wait_for_box(recorder, "path     notes.txt")
        recorder.note("the other one is asked about")
        person.type("y")
    person.until_true(lambda: "Noted." in recorder.rows(), "no answer")
    recorder.wait_for_prompt()


def wait_for_box(recorder: Recorder, text: str) -> None:
    """Wait until the last rows are a box with a text, whose last row has no hint."""
    person = recorder.person

    def is_shown() -> bool:
        return any(text in row for row in recorder.rows()) and person.lines[-1].startswith("╰ ")

    person.until_true(is_shown, f"no box with {text!r}")


def interrupt(recorder: Recorder) -> None:
    """Stop the answer."""
    if recorder.is_drawn:
        recorder.person.type("\x03")
    else:
        recorder.person.process.send_signal(signal.SIGINT)
    recorder.person.until_true(lambda: "interrupted" in recorder.rows(), "not interrupted")
    recorder.wait_for_prompt()


def compare(name: str, shown: str) -> None:
    """Compare the recorded rows with the file of the name, except for times."""
    shown = shown.replace(f"dial-chat {__version__}", "dial-chat VERSION")
    shown = SPINNER.sub(live_area.SPINNER[0], re.sub(r"\b\d+(\.\d+)? s\b", "0 s", shown))
    file = SCREENS / f"{name}.txt"
    if os.environ.get("DIAL_TEST_WRITE_SCREENS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{shown}\n", encoding="utf-8")
    assert f"{shown}\n" == file.read_text(encoding="utf-8")
