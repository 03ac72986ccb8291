"""Every command of a conversation at several widths: on a screen, without colours, and in a dumb terminal."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.inner import COMMANDS
from tests.support.program import entry, write_config
from tests.support.screens import COLOURS, ScreenReader, screen

LIBRARY = Path(__file__).parents[1] / "support" / "servers" / "library.py"
LINES = "\n".join(f"line {number}" for number in range(60))
CALLS = {"tool_calls": [{"name": "echo", "arguments": {"text": text}} for text in ("one", LINES)]}
ANSWER = "# Weather\n\n- [x] **rain**\n\n```python\nprint('rain')\n```\n"
ESC = "\x1b"
MODES: dict[str, dict[str, str]] = {"screen": {}, "no colour": {"NO_COLOR": "1"}, "plain": {}, "dumb": {"TERM": "dumb"}}
WIDTHS = {"screen": (200, 80, 60), "no colour": (80,), "plain": (200, 60), "dumb": (60,)}
"""The widths of the terminal in each mode: without colours the rows are those of the screen, and a dumb terminal's are
those of plain text."""
PLAIN_MACHINE = {
    "DISPLAY": "",
    "WAYLAND_DISPLAY": "",
    "TMUX": "",
    "SSH_CONNECTION": "",
    "PAGER": "cat",
    "PROMPT_TOOLKIT_NO_CPR": "1",
}


def squeeze(text: str) -> str:
    """Return a text without spaces, line breaks and styles, because a narrow terminal wraps lines anywhere."""
    return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\s+", "", text)


class Person:
    """A user who types commands and waits for their output."""

    def __init__(self, reader: ScreenReader) -> None:
        self.reader = reader
        self.typed: set[str] = set()
        self._begin = 0

    @property
    def shown(self) -> str:
        """The squeezed output since the last typed line."""
        return squeeze(self.reader.raw[self._begin :].decode(errors="replace"))

    def type(self, line: str, *expected: str, keys: tuple[tuple[str, str], ...] = ()) -> None:
        """Type a line, answer its prompts with `keys`, and wait until all expected texts are shown."""
        self.begin(line)
        for question, answer in keys:
            self.wait_for(question)
            self.reader.type(answer)
        for text in expected:
            self.wait_for(text)
        self.reader.until_true(lambda: self.reader.lines[-1:] == [">"], f"no prompt behind {line!r}")

    def begin(self, line: str) -> None:
        """Type a line."""
        self.typed.add(line.split(" ", maxsplit=1)[0])
        self._begin = len(self.reader.raw)
        self.reader.type(f"{line}\r")

    def wait_for(self, text: str) -> None:
        """Wait until a text is shown after the last typed line."""
        self.reader.until_true(lambda: squeeze(text) in self.shown, f"{text!r} did not appear")


@pytest.mark.once
@pytest.mark.parametrize("mode", MODES)
def test_every_command_works_at_every_width(tmp_path: Path, mode: str) -> None:
    servers = {
        "raw": entry("Server", autoApprove=["*"]),
        "books": {"command": sys.executable, "args": ["-W", "ignore", str(LIBRARY), "stdio"]},
    }
    write_config(tmp_path, servers, {"replies": [CALLS, ANSWER], "after": "repeat"})
    is_drawn = mode in ("screen", "no colour")
    options = ("--plain",) if mode == "plain" else ()
    with screen(tmp_path, *options, columns=200, rows=45, **(MODES[mode] | PLAIN_MACHINE)) as reader:
        person = Person(reader)
        reader.until("2 servers ready" if is_drawn else ">")
        reader.until_true(lambda: reader.lines[-1:] == [">"], "no prompt")
        for columns in WIDTHS[mode]:
            reader.resize(columns, 45)
            talk(person, columns, is_drawn=is_drawn)
            look_around(person, is_drawn=is_drawn, is_dumb=mode == "dumb")
            change(person, columns, is_drawn=is_drawn, is_dumb=mode == "dumb")
            assert ESC not in reader.recent()
        reader.type("/quit\r")
        assert reader.leave() == 0
        assert reader.is_echoing()
    assert {command.name for command in COMMANDS} - person.typed == {"/quit"}
    assert b"\x1b]0;" not in reader.raw
    assert mode != "dumb" or b"\x1b" not in reader.raw, "a terminal that only prints gets text alone"
    assert (b"\x1b[1m" in reader.raw or b"\x1b[0;1m" in reader.raw) is is_drawn
    assert mode == "screen" or not COLOURS.search(reader.raw)


def talk(person: Person, columns: int, *, is_drawn: bool) -> None:
    """Ask, undo, retry, fork, compact, and resume another conversation."""
    person.type(f"Question at {columns}", "print('rain')")
    assert ("**rain**" in person.shown) is not is_drawn, "rendered on a screen alone"
    person.type("!echo shell-$((40+2))", "shell-42", "exit code 0, 1 line; !! shows it to the model")
    person.type("broken\\\rline with @servers.json", "> broken line with @servers.json" if is_drawn else "", "rain")
    if is_drawn:
        person.type(f"\x1b[200~{LINES}\x1b[201~", "[pasted 60 lines]", "rain")
    person.type("/undo", "Undone:")
    person.type("/redo", "rain")
    person.type("/retry", "rain")
    person.type("/continue", "rain")
    person.type("/now What else?", "rain")
    person.type("/fork Copy", "This is a copy now")
    person.type("/rename Weather talk", "Renamed: Weather talk")
    person.type("More?", "rain")
    person.type("/compact", "/compact undo restores them")
    person.type("/compact undo", "The whole conversation is back")
    person.type("/new", "A new conversation")
    choice = (("Esc leaves", "weather\r"),) if is_drawn else (("(Enter: none):", "1\r"),)
    person.type("/resume", "Conversation", "rain", keys=choice)


def look_around(person: Person, *, is_drawn: bool, is_dumb: bool) -> None:
    """Use the commands that show information."""
    person.type("/help", "/quit leave (also Ctrl-D)")
    person.type("/help model", "/model [NAME]")
    person.type("/calls", "2 ✓ raw.echo", "/last N shows")
    person.type("/last 1", "text: one")
    person.type("/last", "line 58 line 59")
    person.type("/models", "/model NAME answers with another one")
    person.type("/model", "Model: scripted")
    person.type("/usage", "tool calls", "Tokens:")
    person.type("/context", "Context window:", "messages", "results of calls", "All numbers are estimates")
    person.type("/mode", "→ ask asks before each call")
    person.type("/tools echo", "raw echo Says it again")
    person.type("/servers", "raw: ready: 1 tool")
    person.type("/resources", "book://1")
    person.type("/prompts", "greet")
    person.type("/skills", "There are no skills")
    person.type("/skill nothing", "there is no skill 'nothing'")
    person.type("/grants", "no rules and no grants" if "/approve" not in person.typed else "/grants revoke")
    person.type("/copy code", "not copied" if is_dumb else "Copied through the terminal")
    person.type("/theme", "one of auto" if is_drawn else "no colours here")
    person.type("/modle", "did you mean /model?")


def change(person: Person, columns: int, *, is_drawn: bool, is_dumb: bool) -> None:
    """Use the commands that change settings or files."""
    person.type("/system Be brief.", "Instructions: Be brief.")
    person.type("/format native", "Tool format: native")
    person.type("/mode read", "Mode read: runs what only reads")
    person.type("/mode careful", "there is no mode 'careful'")
    person.type("/mode ask", "Mode ask: asks")
    person.type("/approve raw/*", "runs without approval")
    person.type("/deny books/*", "is denied")
    person.type("/restart", "missing server name")
    person.type("/restart raw", "raw: ready")
    person.type("/reload", "2 unchanged")
    person.type("/login raw", "raw")
    person.type(f"/save a{columns}.md", "Written:")
    overwrite = (("Replace it? [y/n]", "n" if is_drawn else "n\r"),)
    person.type(f"/export a{columns}.md", "Not written.", keys=overwrite)
    person.begin("/edit")
    person.wait_for("edit the question and send it")
    if not is_dumb:
        person.reader.until_true(lambda: person.reader.lines[-1].startswith("> "), "no question in the input line")
        person.reader.type("\x15")
    person.type("Again?", "rain")


def test_a_dumb_terminal_gets_prompts_and_no_escape_sequence(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "one"}}]}
    write_config(tmp_path, {"raw": entry("Server")}, {"replies": [call, "Said it.", call], "after": "repeat"})
    with screen(tmp_path, TERM="dumb") as reader:
        person = Person(reader)
        reader.until_true(lambda: reader.lines[-1:] == [">"], "no prompt")
        person.type("Say it", "Said it.", keys=(("Run echo of raw?", "y\r"),))
        person.begin("Again")
        person.wait_for("q stop")
        reader.process.send_signal(signal.SIGINT)
        reader.until_true(lambda: reader.lines[-1:] == [">"], "no prompt behind the turn that was stopped")
        reader.process.send_signal(signal.SIGINT)
        reader.until("Press Ctrl-C again")
        reader.process.send_signal(signal.SIGINT)
        assert reader.leave() == 0
        assert b"\x1b" not in reader.raw
