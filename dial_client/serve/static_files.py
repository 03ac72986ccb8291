"""The web page: the files that lie in ``page`` when the server starts, each under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dial_client.serve.http_responses import HttpError
from dial_client.serve.security import headers_of_page

FOLDER = Path(__file__).parent / "page"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class StaticFiles:
    """Serves the page's files. Names are looked up, never joined to a path."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        self._files: Mapping[str, Path] = {file.name: file for file in found if file.suffix in _TYPES}

    async def index(self, request: Request) -> Response:  # noqa: ARG002 - what is served is the same for everybody
        """``GET /``."""
        return self._file("index.html")

    async def asset(self, request: Request) -> Response:
        """``GET /assets/{name}``."""
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HttpError(404, "there is no such file", "not_found")
        return Response(file.read_bytes(), headers=headers_of_page(_TYPES[file.suffix]))
