"""A day at the terminal, recorded: ``python -m tests.pictures.day FOLDER [--columns 60,100] [--looks dark,light]``.

More than twenty turns in tmux, with real servers: files, and a server with forms
(`@modelcontextprotocol/server-filesystem`, `server-everything`), a browser (`@playwright/mcp` with the machine's
Chromium), and git (`mcp-server-git`). Only the model is scripted, at an endpoint on loopback. The day has approvals in
all forms, a limit, a 429 with Retry-After, a refused question, a server that is killed, and a restart with
``--continue``. Each screen is written as text and as SVG; where Chromium is there, a PNG has all screens of a run.

``DIAL_DAY_PLAYWRIGHT`` is the folder of an installation of ``@playwright/mcp`` (``npm install @playwright/mcp``);
without it the day has no browser.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyte

from tests.pictures.svg_writer import LIGHT_THEME, THEME, draw
from tests.support.model_endpoint import Answer, Call, ModelEndpoint, Recorded, Say, events, model_endpoint, refuse
from tests.support.program import environment, trust

ROOT = Path(__file__).parents[2]
NPM = ROOT / "build" / "npm" / "node_modules" / "@modelcontextprotocol"
LOOKS: Mapping[str, Mapping[str, str]] = {
    "dark": {"COLORFGBG": "15;0"},
    "light": {"COLORFGBG": "0;15"},
    "mono": {"NO_COLOR": "1"},
    "dumb": {"TERM": "dumb"},
}
ROWS = 34
PATIENCE = 90.0
"""Seconds that something may take to appear."""
PAUSE = 0.7
"""Seconds before a key answers a question: a key right after the question appears is ignored."""

SUMMARY = """## The day

| turn | what | result |
|:--|:--|--:|
| 2 | a note for the walk | `walk.md` |
| 4 | under version control | 1 commit |
| 7 | the harbour page | ferry at 18:40 |

```python
def minutes_left(now: int, ferry: int = 18 * 60 + 40) -> int:
    return max(0, ferry - now)
```

- [x] the walk is noted
- [ ] tickets are bought
"""
POEM = "\n\n".join(
    f"Verse {at}: a harbour in the evening, with **lights** on the water, and boats that come home late."
    for at in range(1, 5)
)
NOTE = "# Harbour walk\n\n" + "".join(f"- {hour}:00 pier {hour - 12}\n" for hour in range(13, 19))
PAGE = "<!doctype html><title>Harbour</title><h1>Harbour news</h1><p>The ferry leaves at <b>18:40</b>.</p>{}"
PAGE = PAGE.format('<a href="tickets.html">Tickets</a><ul>' + "<li>A boat is at the pier</li>" * 40 + "</ul>")

USAGE = (3_120, 84)


def calls(*named: tuple[str, dict[str, Any]], text: str = "") -> Say:
    """Return a reply that calls tools."""
    made = (Call(name, arguments, f"call_{at}") for at, (name, arguments) in enumerate(named, 1))
    return Say(text, tuple(made), usage=USAGE)


def says(text: str) -> Say:
    """Return a reply without calls."""
    return Say(text, usage=USAGE)


def begins(text: str) -> Answer:
    """Return a stream that begins with a text, and goes on until the client goes away."""
    pieces = [text[at : at + 40] for at in range(0, len(text), 40)]
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in pieces]
    return events(*chunks, done=False, hang=True)


class Day:
    """A person at a terminal in tmux.

    Args:
        folder: The working folder; the user's folders lie there too.
        target: The folder of the screens.
        columns: The width of the terminal.
        look: A key of `LOOKS`.
    """

    def __init__(self, folder: Path, target: Path, columns: int, look: str) -> None:
        self.folder, self.target, self.columns, self.look = folder, target, columns, look
        self.is_dumb = look == "dumb"
        self._socket = f"day-{os.getpid()}-{look}-{columns}"
        self._count = 0
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(ROWS), "sleep 100000")
        for option, value in (("escape-time", "0"), ("default-terminal", "tmux-256color"), ("history-limit", "20000")):
            self._tmux("set-option", "-g", option, value)
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, "-f", "/dev/null", *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def start(self, *words: str) -> None:
        """Start dial-chat in the terminal."""
        own = {"PATH", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME", "PYTHONPATH"}
        variables = {name: value for name, value in environment(self.folder).items() if name in own}
        variables |= {"TERM": "tmux-256color", "DIAL_LOCAL_SERVERS": "", "LANG": "C.UTF-8", **LOOKS[self.look]}
        command = ["env", "-u", "NO_COLOR", "-u", "COLORFGBG", *(f"{name}={text}" for name, text in variables.items())]
        command += [sys.executable, "-W", "ignore", "-m", "dial_client", *words]
        self._tmux("respawn-pane", "-k", "-c", str(self.folder), shlex.join(command))

    def close(self) -> None:
        """End the terminal, with what runs in it."""
        self._tmux("kill-server")

    @property
    def text(self) -> str:
        """Everything that was printed, and the screen."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    @property
    def shown(self) -> str:
        """The screen."""
        return self._tmux("capture-pane", "-p")

    @property
    def rows_of_form(self) -> list[str]:
        """The rows that have text, without the status line."""
        return [row for row in self.shown.splitlines() if row.strip() and " · mode " not in row]

    def until(self, *texts: str, count: int = 1) -> None:
        """Wait until the screen has one of these texts; a text may be broken anywhere."""
        end = time.monotonic() + PATIENCE
        while not any(re.sub(r"\s+", "", self._flat()).count(re.sub(r"\s+", "", text)) >= count for text in texts):
            if time.monotonic() > end:
                raise AssertionError(f"{texts} did not appear ({self.look}, {self.columns}):\n{self.shown}")
            time.sleep(0.1)

    def _flat(self) -> str:
        return re.sub(r"\s*│\n│\s*", " ", self.shown)

    def until_idle(self) -> None:
        """Wait until the input line is empty, and no turn runs."""
        end = time.monotonic() + PATIENCE
        while True:
            rows = [row for row in self.shown.splitlines() if row.strip()]
            rows = [row for row in rows if not re.search(r"(^| · )mode (ask|read|plan|auto)", row)]
            if rows and rows[-1].strip() == ">" and not any(re.search(r"(Esc|Ctrl-C) stops$", row) for row in rows):
                return
            if time.monotonic() > end:
                raise AssertionError(f"no prompt ({self.look}, {self.columns}):\n{self.shown}")
            time.sleep(0.1)

    def leave(self) -> None:
        """Press Ctrl-D, and wait until the program has ended."""
        self.press("C-d")
        end = time.monotonic() + PATIENCE
        while self._tmux("display-message", "-p", "#{pane_dead}").strip() != "1":
            if time.monotonic() > end:
                raise AssertionError(f"the program did not end:\n{self.shown}")
            time.sleep(0.1)

    def type(self, text: str) -> None:
        """Type keys."""
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press named keys of tmux: ``Enter``, ``Escape``, ``BTab``, ``C-d``."""
        self._tmux("send-keys", *keys)

    def ask(self, question: str) -> None:
        """Send a message."""
        self.until_idle()
        self.type(question)
        self.press("Enter")

    def answer(self, key: str) -> None:
        """Answer a question by a key; without a live area by a line."""
        time.sleep(PAUSE)
        if key == "Escape" and self.is_dumb:
            self.press("Enter")
        elif key == "Escape":
            self.press(key)
        else:
            self.type(key)
            if self.is_dumb:
                self.press("Enter")

    def expect_question(self, box: str, plain: str, name: str) -> None:
        """Wait for a question, which is a box or, without a live area, a line; keep the screen."""
        self.until(box)
        self.until(plain, "Run ") if self.is_dumb else self.until("╰")
        time.sleep(0.3)
        self.keep(name)

    def switch_mode(self, mode: str) -> None:
        """Change the mode by Shift-Tab; without a live area by a command."""
        if self.is_dumb:
            self.ask(f"/mode {mode}")
            self.until(f"Mode {mode}")
            return
        self.until_idle()
        for _ in range(4):
            if f"mode {mode}" in self.shown:
                return
            self.press("BTab")
            time.sleep(0.4)
        raise AssertionError(f"the mode did not become {mode}:\n{self.shown}")

    def keep(self, name: str) -> None:
        """Write the screen as text and as SVG."""
        self._count += 1
        path = self.target / f"{self._count:02}-{name}"
        path.with_suffix(".txt").write_text(self.shown, encoding="utf-8")
        emulated = pyte.Screen(self.columns, ROWS)
        styled = self._tmux("capture-pane", "-p", "-e").removesuffix("\n")
        pyte.Stream(emulated).feed(styled.replace("\n", "\r\n"))
        theme = LIGHT_THEME if self.look == "light" else THEME
        rows: list[Any] = [emulated.buffer[row] for row in range(ROWS)]
        while rows and not any(cell.data.strip() for cell in rows[-1].values()):
            rows.pop()
        path.with_suffix(".svg").write_text(draw(rows, self.columns, path.name, theme), encoding="utf-8")

    def kill_server(self, words: str) -> None:
        """Kill the server of this day whose command line has these words."""
        own = str(self.folder)
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in command and own in command and "tmux" not in command:
                os.kill(int(process.name), signal.SIGKILL)


def live(day: Day, *, browser: bool) -> None:
    """Live through the day; `_list_replies` has the replies of the model in the same order."""
    write_notes(day)
    use_git(day)
    if browser:
        browse(day)
    use_modes(day)
    interrupt_and_steer(day, browser=browser)
    fail(day)
    answer_a_form(day)
    stop_and_continue(day)


def write_notes(day: Day) -> None:
    """Start, and write a note: approve, deny with a reason, see a difference and its details."""
    day.start()
    if not day.is_dumb:  # where it is printed only after a line
        day.until("tools available")
    day.until_idle()
    day.keep("start")

    day.ask("What is in this folder?")
    day.expect_question("list_directory · files", "Run list_directory", "approval")
    day.answer("y")
    day.until("The folder has")
    day.until_idle()
    day.keep("answer")

    day.ask("Write a note for the harbour walk")
    day.expect_question("write_file · files", "Run write_file", "new-file")
    if day.is_dumb:
        day.answer("no, call it walk.md")
    else:
        day.answer("n")
        day.until("No, because")
        day.keep("no-because")
        day.type("call it walk.md")
        day.press("Enter")
    day.until("walk.md")
    day.until("new file", count=1 if not day.is_dumb else 2)
    time.sleep(1)
    day.keep("again-with-a-name")
    day.answer("y")
    day.until("The note is in walk.md")
    day.until_idle()
    day.keep("denied-and-allowed")

    day.ask("Add the ferry")
    day.expect_question("edit_file · files", "Run edit_file", "diff")
    day.answer("d")
    day.until("d less")
    day.keep("details")
    day.answer("d")
    day.until("d details")
    day.answer("y")
    day.until("The ferry is in the note")


def use_git(day: Day) -> None:
    """Approve for the session and always, edit an argument, and decide three calls at once."""
    day.ask("Put it under version control")
    day.expect_question("git_status · git", "Run git_status", "session")
    day.answer("s")
    day.expect_question("git_add · git", "Run git_add", "always")
    day.answer("a")
    day.until("It is staged")
    day.until_idle()
    day.keep("lasting-approvals")

    day.ask("Commit it")
    day.expect_question("git_commit · git", "Run git_commit", "commit")
    day.answer("e")
    day.until("Which argument?")
    day.answer("2")
    time.sleep(PAUSE)
    day.keep("edit")
    if not day.is_dumb:
        day.press("C-u")
    day.type("Note the walk and its ferry")
    day.press("Enter")
    day.until("changed by you")
    time.sleep(0.5)
    day.keep("edited")
    day.answer("y")
    day.until("It is committed")

    day.ask("Show the log, the difference and the note")
    day.expect_question("3 calls to decide", "Run all 3", "three-calls")
    day.answer("2")
    day.until("b back")
    day.keep("one-of-three")
    day.answer("b")
    day.until("1-3 one alone")
    day.answer("y")
    day.until("All three are there")
    day.until_idle()
    day.keep("three-results")


def browse(day: Day) -> None:
    """Open a page, click a link, and take a picture."""
    day.ask("Open the harbour page")
    day.expect_question("browser_navigate · browser", "Run browser_navigate", "browser")
    day.answer("s")
    day.until("18:40, it says")
    day.until_idle()
    day.keep("page")
    day.ask("Open the tickets")
    day.expect_question("browser_click · browser", "Run browser_click", "click")
    day.answer("y")
    day.until("The tickets are shown")
    day.ask("Take a picture")
    day.expect_question("browser_take_screenshot · browser", "Run browser_take_screenshot", "picture")
    day.answer("y")
    day.until("The picture is taken")
    day.until_idle()
    day.keep("picture-taken")


def use_modes(day: Day) -> None:
    """Work in each mode."""
    day.switch_mode("read")
    day.ask("Look into the folder again")
    day.until("Nothing new")
    day.until_idle()
    day.keep("mode-read")
    day.switch_mode("plan")
    day.ask("Write the plan of tomorrow")
    day.until("Here is a plan")
    day.until_idle()
    day.keep("mode-plan")
    day.switch_mode("auto")
    day.ask("Now do it")
    day.until("It is done")
    day.until_idle()
    day.keep("mode-auto")
    day.switch_mode("ask")


def interrupt_and_steer(day: Day, *, browser: bool) -> None:
    """Interrupt an answer, ask about the program meanwhile, and steer a turn."""
    day.ask("Write a poem about the harbour")
    day.until("Verse 3")
    if day.is_dumb:
        day.press("C-c")
    else:
        day.type("/usage")
        day.press("Enter")
        day.until("Tokens:")
        time.sleep(0.3)
        day.keep("information-beside-an-answer")
        day.type("/help mode")
        day.press("Enter")
        day.until("what runs without asking")
        day.keep("help-beside-an-answer")
        day.press("Escape")
    day.until_idle()
    assert "interrupted" in day.text
    day.keep("interrupted")
    if browser:
        day.ask("Wait for the ferry")
        day.expect_question("browser_wait_for · browser", "Run browser_wait_for", "wait")
        day.answer("y")
        time.sleep(1.5)
        day.type("/now and look at pier 3")
        day.press("Enter")
        day.until("with the next results: and look at pier 3")
        day.keep("steering")
        day.until("Pier 3 is empty")
        day.until_idle()
        day.keep("steered")


def fail(day: Day) -> None:
    """Meet a limit, a 429, a refused question, and a server that is killed."""
    day.ask("Look everywhere")
    day.until("limits.max")
    day.until_idle()
    day.keep("limit")
    day.ask("Are you busy?")
    day.until("again in", "waits", "429", "repeat", "Waiting")
    time.sleep(0.5)
    day.keep("rate-limited")
    day.until("Not any more")
    day.ask("Say something that is refused")
    day.until("content policy")
    day.until_idle()
    day.keep("refused")
    day.ask("/retry")
    day.until("This time I answer")
    day.until_idle()
    day.keep("retried")
    day.kill_server("mcp_server_git")
    day.ask("What does git say?")
    day.until("Nothing to commit")
    day.until_idle()
    day.ask("/servers")
    day.until("started again once")
    day.until_idle()
    day.keep("server-restarted")


def answer_a_form(day: Day) -> None:
    """Fill in the form of a server, and decline it once."""
    for name in ("form", "form-declined"):
        day.ask("Fill in the form" if name == "form" else "And once more")
        day.expect_question("trigger-elicitation-request · forms", "Run trigger-elicitation", f"{name}-approval")
        day.answer("y")
        day.until("forms asks")
        time.sleep(PAUSE)
        day.keep(name)
        if name == "form":
            answered = ""
            for _ in range(int(PATIENCE / 0.4)):
                rows = day.rows_of_form
                if any("y send" in row or "Send it to" in row for row in rows[-3:]):
                    break
                if rows[-1] != answered:  # else the next field is not drawn yet
                    answered = rows[-1]
                    day.type("Ada Lovelace" if re.search(r"String( \(required\))?:\s*$", answered) else "")
                    day.press("Enter")
                time.sleep(0.4)
            day.until("y send", "Send it to")
            day.keep("form-filled-in")
            day.answer("y")
            day.until("The form is sent")
        elif day.is_dumb:
            day.press("C-d")
            day.until("declined it")
        else:
            day.press("Escape")
            day.until("declined it")
        day.until_idle()
        day.keep(f"{name}-over")


def stop_and_continue(day: Day) -> None:
    """Stop a turn at an approval, deny by Esc, leave, and continue."""
    day.ask("Delete the note")
    day.expect_question("move_file · files", "Run move_file", "to-stop")
    day.answer("q")
    day.until("interrupted")
    day.ask("Delete it after all")
    day.expect_question("move_file · files", "Run move_file", "to-deny")
    day.answer("Escape")
    day.until("It stays")
    day.until_idle()
    day.keep("denied-by-esc")
    day.ask("/context")
    day.until("The parts are estimates")
    day.until_idle()
    day.keep("context")
    day.leave()
    day.keep("left")
    day.start("--continue")
    day.until("It stays")
    day.until_idle()
    if not day.is_dumb:
        day.until("context ~")
    day.keep("continued")
    day.ask("What did we do today?")
    day.until("tickets are bought")
    day.until_idle()
    day.keep("summary")
    day.leave()


def _list_replies(folder: Path, site: str, *, browser: bool) -> list[Answer]:
    path, new = str(folder / "walk.md"), str(folder / "tomorrow.md")
    edits = [{"oldText": "- 18:00 pier 6\n", "newText": "- 18:00 pier 6\n- 18:40 the ferry\n"}]
    listing: tuple[str, dict[str, Any]] = ("list_directory", {"path": str(folder)})
    repository = {"repo_path": str(folder)}
    away = calls(("move_file", {"source": path, "destination": str(folder / "old.md")}))
    ask_form = calls(("trigger-elicitation-request", {}))
    replies: list[Answer] = [
        calls(listing, text="I look."),
        says("The folder has a `README.md` and the files of git."),
        calls(("write_file", {"path": str(folder / "note.txt"), "content": NOTE})),
        calls(("write_file", {"path": path, "content": NOTE})),
        says("The note is in walk.md."),
        calls(("edit_file", {"path": path, "edits": edits})),
        says("The ferry is in the note."),
        calls(("git_status", repository)),
        calls(("git_add", {**repository, "files": ["walk.md"]})),
        says("It is staged."),
        calls(("git_commit", {**repository, "message": "Note"})),
        says("It is committed."),
        calls(("git_log", repository), ("git_diff_unstaged", repository), ("read_text_file", {"path": path})),
        says("All three are there."),
    ]
    if browser:
        replies += [
            calls(("browser_navigate", {"url": f"{site}/index.html"})),
            says("The ferry leaves at 18:40, it says."),
            calls(("browser_click", {"element": "Tickets", "target": "a"})),
            says("The tickets are shown."),
            calls(("browser_take_screenshot", {"scale": "css", "type": "png"})),
            says("The picture is taken."),
        ]
    replies += [
        calls(listing),
        says("Nothing new."),
        calls(("write_file", {"path": new, "content": "# Tomorrow\n"})),
        says("Here is a plan:\n\n1. Note it\n2. Commit it"),
        calls(("write_file", {"path": new, "content": "# Tomorrow\n"})),
        says("It is done."),
        begins(POEM),
    ]
    if browser:
        replies += [calls(("browser_wait_for", {"time": 8})), says("Pier 3 is empty.")]
    replies += [
        *(calls(("git_status", repository), text=f"Place {at}.") for at in range(1, 4)),
        says("I stopped looking: there are too many places."),
        refuse(429, "Too many requests", {"retry-after": "4"}),
        says("Not any more."),
        refuse(400, "This question is against the content policy"),
        says("This time I answer."),
        calls(("git_status", repository)),
        says("Nothing to commit, it says."),
        ask_form,
        says("The form is sent."),
        ask_form,
        says("You declined it."),
        away,
        away,
        says("It stays."),
        Say(SUMMARY, usage=(3_400, 210), pieces=30),
    ]
    return replies


@contextmanager
def _serve_site(folder: Path) -> Iterator[str]:
    folder.mkdir()
    (folder / "index.html").write_text(PAGE, encoding="utf-8")
    (folder / "tickets.html").write_text("<!doctype html><title>Tickets</title><h1>Tickets: 4 Euro</h1>", "utf-8")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _write_config(folder: Path, endpoint: ModelEndpoint, playwright: str) -> None:
    files = {"command": "node", "args": [str(NPM / "server-filesystem" / "dist" / "index.js"), str(folder)]}
    servers: dict[str, Any] = {
        "files": {**files, "trusted": True},
        "git": {
            "command": sys.executable,
            "args": ["-W", "ignore", "-m", "mcp_server_git", "--repository", str(folder)],
        },
        "forms": {
            "command": "node",
            "args": [str(NPM / "server-everything" / "dist" / "index.js"), "stdio"],
            "enabledTools": ["trigger-elicitation-request"],
        },
    }
    if playwright:
        program = Path(playwright) / "node_modules" / "@playwright" / "mcp" / "cli.js"
        options = ["--headless", "--isolated", "--no-sandbox", "--executable-path", shutil.which("chromium") or ""]
        servers["browser"] = {"command": "node", "args": [str(program), *options]}
    settings = {
        "mcpServers": servers,
        "models": {
            "harbour": {
                "api": "chat",
                "base_url": f"{endpoint.url}/v1",
                "model": "harbour-large",
                "context_window": 32_000,
            }
        },
        "defaultModel": "harbour",
        "startupPatience": 60,
        "limits": {"maxDepth": 3},
    }
    (folder / "servers.json").write_text(json.dumps(settings, indent=2))
    trust(folder)


def record(target: Path, columns: int, look: str) -> None:
    """Live through one day, and write its screens."""
    playwright = os.environ.get("DIAL_DAY_PLAYWRIGHT", "") if shutil.which("chromium") else ""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as parent, model_endpoint([Say("")]) as endpoint:
        folder = Path(parent).resolve() / "harbour"
        folder.mkdir()
        (folder / "README.md").write_text("# Harbour\n", encoding="utf-8")
        (folder / ".gitignore").write_text("home\nservers.json\n", encoding="utf-8")
        for words in (["init", "-q"], ["config", "user.name", "Ada"], ["config", "user.email", "ada@example.test"]):
            subprocess.run(["git", *words], cwd=folder, check=True)
        subprocess.run(["git", "add", "."], cwd=folder, check=True)
        subprocess.run(["git", "commit", "-qm", "Begin"], cwd=folder, check=True)
        with _serve_site(Path(parent) / "site") as site:
            replies = _list_replies(folder, site, browser=bool(playwright))

            def choose(_: Recorded) -> Answer:
                return replies.pop(0) if replies else says("There is nothing more to say.")

            endpoint.answer_to = choose
            _write_config(folder, endpoint, playwright)
            day = Day(folder, target, columns, look)
            try:
                live(day, browser=bool(playwright))
                assert not replies, f"{len(replies)} replies are left"
            finally:
                (target / "all.txt").write_text(day.text, encoding="utf-8")
                day.close()
                draw_sheet(target, columns)


def draw_sheet(target: Path, columns: int) -> None:
    """Draw all screens of a run as PNG files of nine, in Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return
    screens = sorted(target.glob("*.svg"))
    across = 3 if columns <= 60 else 2
    for number, start in enumerate(range(0, len(screens), across * 3), 1):
        part = screens[start : start + across * 3]
        width = 2_000 // across
        images = "".join(f'<img src="{path.name}" width="{width - 20}" style="margin:8px">' for path in part)
        sheet = target / "sheet.html"
        sheet.write_text(f'<body style="margin:0;background:#888">{images}</body>', encoding="utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--hide-scrollbars", f"--screenshot={number}.png"]
        subprocess.run(
            [*command, "--window-size=2000,2100", sheet.as_uri()], cwd=target, capture_output=True, check=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--columns", default="60,100,160")
    parser.add_argument("--looks", default=",".join(LOOKS))
    chosen = parser.parse_args()
    for width in map(int, chosen.columns.split(",")):
        for name in chosen.looks.split(","):
            place = chosen.folder.resolve() / f"{name}-{width}"
            begun = time.monotonic()
            record(place, width, name)
            print(f"{place}: {len(list(place.glob('*.svg')))} screens, {time.monotonic() - begun:.0f} s", flush=True)
