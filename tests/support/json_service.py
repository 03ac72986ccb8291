"""An HTTP service on loopback that answers with JSON, by the path of the request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class JsonService:
    """A service that runs; `requests` are the targets it was asked for."""

    url: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def json_service(answers: Mapping[str, Any]) -> Iterator[JsonService]:
    """Answer GET requests; bytes are sent as they are, and a path that is not known is 404."""
    service = JsonService("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.requests.append(self.path)
            path = self.path.partition("?")[0]
            value = answers.get(path)
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
