"""The web page as a person has it: `dial-chat serve` in a process of its own, and Chromium before it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.browser import Browser, Tab
from tests.support.program import HERE, LONG, environment, write_config

SDK = str(HERE / "servers" / "sdk.py")
ASKING = str(HERE / "servers" / "elicitation.py")
DONE = "document.querySelector('.turn:last-child .turn-foot')"
"""The newest turn is over."""


def server(program: str, *options: str, **settings: Any) -> dict[str, Any]:
    """Give the servers.json entry of a server of the SDK."""
    return {"command": sys.executable, "args": ["-W", "ignore", program, *options], **settings}


def two_servers(**of_the_first: Any) -> dict[str, Any]:
    """Give two servers; of the second every tool is approved."""
    return {
        "library": server(SDK, "stdio", **of_the_first),
        "asking": server(ASKING, autoApprove=["*"]),
    }


@contextmanager
def served(folder: Path, replies: Any, servers: dict[str, Any] | None = None, *words: str, **env: str) -> Iterator[str]:
    """Serve for as long as this lasts; gives the address with the token in it."""
    write_config(folder, servers, replies)
    command = [sys.executable, "-m", "dial_client", "serve", "--port", "0", *words]
    said = folder / "stderr.log"
    with (
        said.open("w") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment(folder, **env), stdin=subprocess.DEVNULL, stderr=log
        ) as process,
    ):
        try:
            yield _address(process, said)
        finally:
            process.terminate()
            try:
                process.wait(LONG)
            finally:
                process.kill()


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    until = time.monotonic() + LONG
    while process.poll() is None and time.monotonic() < until:
        if found := re.search(r"http://\S+\n", said.read_text()):
            return found[0].strip()
        time.sleep(0.02)
    raise AssertionError(f"it never served: {said.read_text()}")


class Relay:
    """A way to a server that can be cut: connections are dropped, and new ones too, until it is mended."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drop all."""
        with self._lock:
            self._is_cut = True
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        """Drop all for good."""
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
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=(source, target), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    # Each socket is read by one thread, and closed by it.
    source.close()


@contextmanager
def relayed(address: str) -> Iterator[tuple[Relay, str]]:
    """Give a relay to the server at an address, and the address through it."""
    port = re.search(r":(\d+)/", address)
    assert port is not None
    relay = Relay(int(port[1]))
    try:
        yield relay, address.replace(f":{port[1]}/", f":{relay.port}/")
    finally:
        relay.close()


def opened(browser: Browser, address: str, **media: str) -> Tab:
    """Open the page, and wait until it is ready to be talked to."""
    tab = browser.tab(**media)
    tab.go(address)
    tab.until("document.querySelector('#conversations > *') && document.activeElement.id === 'message'")
    return tab


def say(tab: Tab, text: str) -> None:
    """Type a message and send it."""
    tab.click("#message")
    tab.type(text)
    tab.press("Enter")


def shown(tab: Tab, selector: str) -> str:
    """Give the text of the first element that matches, unfolded or not."""
    return str(tab.until(f"document.querySelector({selector!r})?.textContent"))


def harmless(tab: Tab, address: str) -> None:
    """Assert that the page asked nobody but its own server, broke no rule of the content policy, and threw nothing."""
    home = address.partition("#")[0]
    assert [one for one in tab.asked if not one.startswith(home)] == []
    assert tab.complaints == []
    assert tab.dialogs == []
