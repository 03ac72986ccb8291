"""The web page as a user sees it: `dial-chat serve` in a process of its own, and Chromium."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.browser import PATIENCE, Browser, BrowserError, Tab
from tests.support.program import HERE, LONG, environment, python_server, start_dial_chat, write_config

SDK = HERE / "servers" / "sdk.py"
ASKING = HERE / "servers" / "elicitation.py"
DONE = "document.querySelector('.turn:last-child .turn-foot')"
"""True when the last turn is finished."""


def two_servers(**settings: Any) -> dict[str, Any]:
    """Return two servers: ``library`` (the script ``sdk.py``) with these settings, and the approved ``asking``."""
    return {"library": python_server(SDK, "stdio", **settings), "asking": python_server(ASKING, autoApprove=["*"])}


@contextmanager
def serve_page(
    folder: Path, replies: Any, servers: dict[str, Any] | None = None, *words: str, **env: str
) -> Iterator[str]:
    """Run the server and provide its URL with the token."""
    write_config(folder, servers, replies)
    with serve_folder(folder, *words, **env) as address:
        yield address


@contextmanager
def serve_folder(folder: Path, *words: str, **env: str) -> Iterator[str]:
    """Run the server in a folder that has a servers.json, and provide its URL with the token."""
    command = ["serve", "--port", "0", *words]
    variables = environment(folder, **env)
    log_path = folder / "stderr.log"
    with (
        log_path.open("w") as log,
        start_dial_chat(folder, *command, env=variables, stdin=subprocess.DEVNULL, stderr=log) as process,
    ):
        try:
            yield wait_for_url(process, log_path)
        finally:
            process.terminate()
            try:
                process.wait(LONG)
            finally:
                process.kill()


def wait_for_url(process: subprocess.Popen[bytes], log_path: Path) -> str:
    """Return the URL of the page, as soon as a server has printed it."""
    until = time.monotonic() + LONG
    while process.poll() is None and time.monotonic() < until:
        if found := re.search(r"http://\S+\n", log_path.read_text()):
            return found[0].strip()
        time.sleep(0.02)
    raise AssertionError(f"the server did not start: {log_path.read_text()}")


class Relay:
    """A TCP relay that can be cut: all connections are dropped until it is restored.

    With a `host`, it replaces the ``Host`` header of each request, as proxies do that are not told to pass it on.
    """

    def __init__(self, port: int, host: str = "") -> None:
        self._to = port
        self._host = host
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drop all connections, and new connections until `mend`."""
        with self._lock:
            self._is_cut = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        """Drop all connections and stop listening."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._is_cut:
                        client.close()
                        continue
                    server = socket.create_connection(("127.0.0.1", self._to))
                    self._open += [client, server]
                for source, target, host in ((client, server, self._host), (server, client, "")):
                    threading.Thread(target=_copy, args=(source, target, host), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket, host: str) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(re.sub(rb"(?m)^Host: .*\r$", f"Host: {host}\r".encode(), data) if host else data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    # Each socket is read and closed by the same thread.
    source.close()


@contextmanager
def open_relay(address: str, host: str = "") -> Iterator[tuple[Relay, str]]:
    """Provide a relay to the server at a URL, and the URL of the relay; `host` replaces the header of requests."""
    port = re.search(r":(\d+)/", address)
    assert port is not None
    relay = Relay(int(port[1]), host)
    try:
        yield relay, address.replace(f":{port[1]}/", f":{relay.port}/")
    finally:
        relay.close()


def open_page(browser: Browser, address: str, **media: str) -> Tab:
    """Open the page and wait until it is ready."""
    tab = browser.tab(**media)
    tab.go(address)
    tab.until("document.querySelector('#conversations > *') && document.activeElement.id === 'message'")
    return tab


def send_message(tab: Tab, text: str) -> None:
    """Type a message and send it."""
    tab.click("#message")
    tab.type(text)
    tab.press("Enter")


def find_frame(tab: Tab, condition: str, after: Tab | None = None) -> Tab:
    """Return the frame of an app where a condition becomes true, if `after` is given one that began after it."""
    for _ in range(int(PATIENCE / 0.1)):
        began = tab.frames.index(after) + 1 if after else 0
        for frame in tab.frames[began:]:
            if not frame.has_ended and _ask(frame, f"Boolean({condition})"):
                frame.call("Runtime.enable")
                return frame
        tab.run("new Promise((resolve) => setTimeout(resolve, 100))")
    texts = [_ask(frame, "document.body.innerText.slice(0, 500)") for frame in tab.frames if not frame.has_ended]
    raise AssertionError(f"true in no frame: {condition}\n{texts}")


def _ask(frame: Tab, script: str) -> Any:
    # A frame that ends, loads or hangs does not answer.
    try:
        return frame.run(script, within=2)
    except BrowserError:
        return None


def fetch_conversation(tab: Tab) -> Any:
    """Return the open conversation as it is stored."""
    return tab.run(
        "fetch('conversations/' + location.hash.split('/').at(-1), {headers: {Authorization: "
        "'Bearer ' + sessionStorage.getItem('dial-token')}}).then((response) => response.json())"
    )


def save_as_html(tab: Tab, folder: Path, title: str) -> Path:
    """Save the open conversation as HTML with its menu, and return the file, which has the name of the title."""
    tab.download_to(folder)
    tab.click("#conversation-more")
    tab.until("document.querySelector('.menu')")
    at = tab.run("[...document.querySelectorAll('.menu-item')].findIndex(e => e.textContent === 'Save as HTML') + 1")
    tab.click(f".menu-item:nth-child({at})")
    tab.until("document.querySelector('.menu') === null")
    path = folder / f"{title}.html"
    for _ in range(int(PATIENCE / 0.05)):
        if path.is_file():
            break
        tab.run("new Promise((done) => setTimeout(done, 50))")
    return path


def read_text(tab: Tab, selector: str) -> str:
    """Return the text of the first element that matches, visible or not."""
    return str(tab.until(f"document.querySelector({selector!r})?.textContent"))


def drop_errors_of_ended_turns(tab: Tab) -> None:
    """Drop the errors about the events of turns: a turn may end before the page requests its events."""
    refused = re.compile(r"404 .*/turns/\w+/events$")
    tab.console_errors = [error for error in tab.console_errors if not refused.search(error)]


def assert_harmless(tab: Tab, address: str) -> None:
    """Assert that the page sent requests to its own server only, obeyed the content policy, and threw no error."""
    home = address.partition("#")[0]
    assert [url for url in tab.requests if not url.startswith(home)] == []
    assert tab.console_errors == [], tab.console_errors
    assert tab.dialogs == []
