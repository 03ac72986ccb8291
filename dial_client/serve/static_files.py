"""Serves the web page: the files that are in ``page`` when the server starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dial_client.serve.http_responses import HttpError
from dial_client.serve.security import page_headers

FOLDER = Path(__file__).parent / "page"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class StaticFiles:
    """Serves the files of the web page. File names are looked up, never joined to a path."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        self._files: Mapping[str, Path] = {file.name: file for file in files if file.suffix in _TYPES}

    async def index(self, request: Request) -> Response:  # noqa: ARG002 - the response is the same for every request
        """Respond to ``GET /``."""
        return self._read("index.html")

    async def asset(self, request: Request) -> Response:
        """Respond to ``GET /assets/{name}``."""
        return self._read(request.path_params["name"])

    def _read(self, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HttpError(404, "there is no such file", "not_found")
        return Response(file.read_bytes(), headers=page_headers(_TYPES[file.suffix]))
