"""Headless Chromium, driven over the DevTools protocol through pipes, with only the standard library.

Pages can reach loopback only: other host names do not resolve, and `Tab.requests` lists all attempts.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds until a wait fails; only a guard against waiting forever."""

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM = next((found for name in _NAMES if (found := shutil.which(name))), None)
WHY_NOT = (
    "Chromium is driven through inherited file descriptors, which Windows does not have"
    if sys.platform == "win32"
    else "Chromium is not installed (Debian: apt-get install chromium)"
    if PROGRAM is None
    else ""
)

_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    # A process of its own for what draws the page without a GPU would serve the pages of one browser only.
    "--in-process-gpu",
    "--disable-sync",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    # Each profile would start two renderers for suggestions of the address bar, and each page a spare one.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)

# The browser reads commands from descriptor 3 and answers on 4; the launcher moves the pipes there.
_LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 60)
os.dup2(int(sys.argv[2]), 61)
os.dup2(60, 3)
os.dup2(61, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

# The centre of an element that does not move: scrolling and content that loads move the elements of a page.
_PLACE = """
async (selector) => {
  const look = () => {
    const found = document.querySelector(selector);
    if (!found || found.disabled || found.closest("[inert]")) return null;
    found.scrollIntoView({ block: "nearest" });
    const { left, top, width, height } = found.getBoundingClientRect();
    return width ? [left + width / 2, top + height / 2] : null;
  };
  const before = look();
  await new Promise((kept) => { requestAnimationFrame(kept); setTimeout(kept, 100); });
  const after = look();
  if (!before || !after || before.join() !== after.join()) return null;
  const element = document.querySelector(selector);
  // A press that the browser hands to a frame is not seen by the page.
  window.hasMissed = true;
  const note = ({ target }) => { window.hasMissed = !element.contains(target); };
  addEventListener("pointerdown", note, { capture: true, once: true });
  return after;
}
"""


_FOCUS = "(({id, tagName, value}) => `focus: ${tagName} ${id}, value: ${value}`)(document.activeElement ?? {})"
"""What has the focus, and the text in it, which the text of a page does not include."""


class BrowserError(AssertionError):
    """The browser refused a command, a script threw, or a condition never became true."""


class Browser:
    """A running Chromium."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._waiting: dict[int, tuple[str | None, queue.SimpleQueue[dict[str, Any]]]] = {}
        """The commands without an answer: their sessions, and the queues for their answers."""
        self._tabs: dict[str, Tab] = {}
        """The pages and frames by their sessions."""
        self._contexts: list[str] = []
        """The browser contexts of the open tabs."""
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, method: str, session: str | None = None, within: float = PATIENCE, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = (session, answer)
            command = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
            _write_all(self._commands, json.dumps(command).encode() + b"\0")
        try:
            response = answer.get(timeout=within)
        except queue.Empty:
            raise BrowserError(f"{method}: no answer") from None
        if "error" in response:
            raise BrowserError(f"{method}: {response['error'].get('message')}")
        result: dict[str, Any] = response["result"]
        return result

    def tab(self, **media: str) -> Tab:
        """Open a tab with separate storage, for a user with media preferences (``prefers_color_scheme="dark"``)."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        self._contexts.append(context)
        return self.open_tab(context, media)

    def open_tab(self, context: str, media: dict[str, str]) -> Tab:
        """Open a tab in a browser context."""
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, context)
        self._tabs[session] = tab
        tab.prepare(media)
        return tab

    def close_tabs(self) -> None:
        """Close all tabs, and delete their storage."""
        while self._contexts:
            self.call("Target.disposeBrowserContext", browserContextId=self._contexts.pop())
        self._tabs.clear()

    def ended(self) -> None:
        """Wait until the browser has closed its pipe."""
        self._reader.join(PATIENCE)

    def _read(self) -> None:
        buffer = b""
        while piece := os.read(self._answers, 1 << 16):
            *messages, buffer = (buffer + piece).split(b"\0")
            for message in messages:
                self._dispatch(json.loads(message))

    def _dispatch(self, message: dict[str, Any]) -> None:
        if "id" in message:
            _, waiting = self._waiting.pop(message["id"], (None, None))
            if waiting is not None:
                waiting.put(message)
        elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
            method, params = message["method"], message.get("params", {})
            if method == "Target.attachedToTarget":
                session = params["sessionId"]
                self._tabs[session] = Tab(self, session)
                tab.frames.append(self._tabs[session])
            elif method == "Target.detachedFromTarget":
                self._end_session(params["sessionId"])
            else:
                tab.handle_event(method, params)

    def _end_session(self, session: str) -> None:
        if (ended := self._tabs.get(session)) is not None:
            ended.has_ended = True
        # The browser does not answer the commands of a page that ended.
        with self._lock:
            numbers = [number for number, (owner, _) in self._waiting.items() if owner == session]
            waiting = [self._waiting.pop(number)[1] for number in numbers]
        for each in waiting:
            each.put({"error": {"message": "the page ended"}})


class Tab:
    """A page, with a record of its requests and errors."""

    def __init__(self, browser: Browser, session: str, context: str = "") -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.requests: list[str] = []
        """The URLs of all requests, except those within the page (``data:``, ``blob:``)."""
        self.console_errors: list[str] = []
        """Errors and warnings of the console: exceptions of scripts, violations of the content policy."""
        self.dialogs: list[str] = []
        """The messages of ``alert`` and similar dialogs."""
        self.frames: list[Tab] = []
        """The frames that run in separate processes, in the order of their start, including ended frames."""
        self.has_ended = False
        """True for a frame that was removed or got another process."""

    def prepare(self, media: dict[str, str]) -> None:
        """Enable all events and set the user's preferences."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self.resize(1280, 800)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to this page and return its result."""
        return self._browser.call(method, self._session, **params)

    def handle_event(self, method: str, params: dict[str, Any]) -> None:
        """Record an event."""
        match method:
            case "Network.requestWillBeSent":
                if not params["request"]["url"].startswith(("data:", "blob:", "about:")):
                    self.requests.append(params["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(params["url"])
            case "Log.entryAdded":
                entry = params["entry"]
                if entry["level"] in ("error", "warning"):
                    self.console_errors.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}".strip())
            case "Runtime.exceptionThrown":
                self.console_errors.append(f"threw: {_thrown(params['exceptionDetails'])}")
            case "Runtime.consoleAPICalled":
                if params["type"] in ("error", "warning"):
                    values = [str(arg.get("value", arg.get("description"))) for arg in params["args"]]
                    self.console_errors.append(f"console: {' '.join(values)}")
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Resize the page, in CSS pixels, and wait until the page has drawn itself at that size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        # The page is told of its size when it draws the next frame, and observers of elements after that.
        self.run("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")

    def go(self, url: str) -> None:
        """Open a URL."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def open_beside(self, url: str) -> Tab:
        """Open a URL in another tab of the same browser, with the same storage."""
        tab = self._browser.open_tab(self._context, {})
        # A tab in the background renders no frames.
        for each in (self, tab):
            each.call("Emulation.setFocusEmulationEnabled", enabled=True)
        tab.go(url)
        return tab

    def reload(self) -> None:
        """Reload the page."""
        self.run("window.isOld = true")
        self.call("Page.reload")
        self.until("!window.isOld && document.readyState === 'complete'")

    def run(self, script: str, within: float = PATIENCE) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        options = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        result = self._browser.call("Runtime.evaluate", self._session, within, expression=script, **options)
        if "exceptionDetails" in result:
            raise BrowserError(_thrown(result["exceptionDetails"]))
        return result["result"].get("value")

    def until(self, condition: str, within: float = PATIENCE) -> Any:
        """Wait until a JavaScript expression is true and return its value."""
        look = (
            "new Promise((kept, broken) => { const began = Date.now(); const look = async () => { let found; "
            f"try {{ found = await ({condition}); }} catch (error) {{ found = null; }} "
            f"if (found) kept(found); else if (Date.now() - began > {within * 1000:.0f}) broken(new Error('never')); "
            "else setTimeout(look, 20); }; look(); })"
        )
        for _ in range(3):
            try:
                return self.run(look, within + PATIENCE)
            except BrowserError as error:
                if "context" not in str(error) and "navigated" not in str(error):
                    raise BrowserError(
                        f"never true: {condition}\n{self.run(_FOCUS)}\n{self.run('document.body.innerText')[:3000]}"
                    ) from None
        raise BrowserError(f"the page never came to rest: {condition}")

    def click(self, selector: str) -> None:
        """Click at the centre of the first matching element; an element in front of it gets the click."""
        with self.pressed(selector):
            pass

    def locate(self, selector: str) -> tuple[float, float]:
        """Return the centre of the first matching element once it does not move, in CSS pixels."""
        x, y = self.until(f"({_PLACE})({json.dumps(selector)})")
        return x, y

    @contextmanager
    def pressed(self, selector: str) -> Iterator[None]:
        """Hold the mouse button down at the centre of the first matching element; the pointer does not move afterwards.

        If the element moved away in the meantime, or a frame in its place got the press, the press is repeated. An
        element in front of it gets the press.
        """
        for pause in (50, 100, 200, 400, 0):
            x, y = self.locate(selector)
            pointer = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type="mousePressed", **pointer)
            if not (pause and self.run("window.hasMissed")):
                break
            self.call("Input.dispatchMouseEvent", type="mouseReleased", **(pointer | {"x": 0, "y": 0}))
            # The browser finds what is in a place in the frame that it drew last.
            self.run(f"new Promise((passed) => setTimeout(passed, {pause}))")
        yield
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **pointer)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse button at a place and release it at another; a click if both are the same."""
        for kind, place in (("mousePressed", start), ("mouseReleased", end)):
            x, y = place
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, modifiers: int = 0) -> None:
        """Press and release a key by its name (``Enter``, ``Escape``, ``/``); 8 is Shift."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Backspace": 8, "Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}
        about = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": codes.get(key, ord(key[0]))}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def download_to(self, folder: Path) -> None:
        """Save downloads in a folder, under their suggested names."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in a file input."""
        found = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        self.call("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])

    def screenshot(self, path: Path) -> None:
        """Save a screenshot in the format of the file's suffix: PNG, or WebP with some loss."""
        options = {"quality": 82} if path.suffix == ".webp" else {}
        taken = self.call("Page.captureScreenshot", format=path.suffix[1:], **options)
        path.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Run Chromium, with its files in `folder`."""
    assert PROGRAM is not None
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    sandbox = ["--no-sandbox"] if sys.platform != "win32" and os.geteuid() == 0 else []
    launcher = [sys.executable, "-c", _LAUNCHER, str(to_browser), str(from_browser)]
    process = subprocess.Popen(
        [*launcher, PROGRAM, *_FLAGS, *sandbox, f"--user-data-dir={folder}"],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_browser)
    os.close(from_browser)
    found = Browser(commands, answers)
    try:
        yield found
    finally:
        os.close(commands)  # ends the browser
        process.wait(PATIENCE)
        found.ended()
        os.close(answers)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _thrown(details: dict[str, Any]) -> str:
    thrown = details.get("exception", {})
    return str(thrown.get("description", thrown.get("value", details.get("text"))))
