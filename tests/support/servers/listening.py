"""What servers as processes share: an end in time, and a port that is printed on standard output."""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import Any

import uvicorn

LIFETIME = 120.0


def end_in_time() -> None:
    """End this process after `LIFETIME` seconds, whatever it does."""
    end = threading.Timer(LIFETIME, os._exit, [9])
    end.daemon = True
    end.start()


def listen(app: Any, port: int = 0) -> None:
    """Run an ASGI application on a port of loopback, 0 for a free one, until standard input ends; print the port."""
    listener = socket.socket()
    if os.name == "posix":  # elsewhere it would let two servers share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    print(listener.getsockname()[1], flush=True)

    def leave() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=leave, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listener])
