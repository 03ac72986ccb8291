"""Serves the web page: the files that ``page`` has at the server's start, compressed if the browser accepts gzip."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dial_client.serve.http_responses import HttpError
from dial_client.serve.security import ASSETS, FRAME_SCRIPTS, frame_headers, page_headers

FOLDER = Path(__file__).parent / "page"
VENDOR = "vendor"
"""The folder of third-party files. Its ``manifest.json`` lists their versions, licences and hashes."""
SERVICE_WORKER = "service_worker.js"
"""The service worker. A header lets it intercept requests for the page itself, which is outside of its folder."""
FRAME = "diagram_frame.html"
"""The document that draws diagrams, in an opaque origin."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
_MIN_COMPRESSED = 1_000
"""Minimum size in bytes of a file that is compressed."""
_LEVEL = 9


@dataclass(frozen=True, slots=True)
class _Content:
    """A file's content, plain and compressed; `compressed` is empty for small files."""

    plain: bytes
    compressed: bytes
    etag: str


class StaticFiles:
    """Serves the files of the web page. Requested names are looked up in a table, never joined to a path."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = [*_list_files(folder), *sorted((folder / VENDOR).rglob("*"))]
        self._files: Mapping[str, Path] = {
            file.relative_to(folder).as_posix(): file for file in files if file.suffix in _TYPES
        }
        self._contents: dict[str, _Content] = {}

    async def index(self, request: Request) -> Response:
        """Respond to ``GET /``."""
        return self._respond("index.html", request)

    async def asset(self, request: Request) -> Response:
        """Respond to ``GET /assets/{name}``."""
        return self._respond(request.path_params["name"], request)

    def _respond(self, name: str, request: Request) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HttpError(404, "there is no such file", "not_found")
        content = self._contents.get(name)
        if content is None or not name.startswith(f"{VENDOR}/"):
            content = self._contents[name] = _read(file, content)
        headers = {**_headers(name, _TYPES[file.suffix]), "etag": content.etag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == content.etag:
            return Response(status_code=304, headers=headers)
        if content.compressed and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(content.compressed, headers=headers | {"content-encoding": "gzip"})
        return Response(content.plain, headers=headers)


def _list_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _read(file: Path, cached: _Content | None) -> _Content:
    """Return the content of a file; `cached` if the file has not changed since it was read."""
    plain = file.read_bytes()
    if cached is not None and cached.plain == plain:
        return cached
    compressed = gzip.compress(plain, _LEVEL, mtime=0) if len(plain) >= _MIN_COMPRESSED else b""
    return _Content(plain, compressed, f'"{hashlib.sha256(plain).hexdigest()[:32]}"')


def _headers(name: str, mime_type: str) -> Mapping[str, str]:
    if name == FRAME:
        return frame_headers(mime_type)
    headers = page_headers(mime_type)
    if name == SERVICE_WORKER:
        return {**headers, "service-worker-allowed": "/"}
    return {**headers, "cross-origin-resource-policy": "cross-origin"} if ASSETS + name in FRAME_SCRIPTS else headers
