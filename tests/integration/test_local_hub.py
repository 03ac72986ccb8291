"""GGUF files of the model hub, with a small file from a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from tests.inner import (
    ConfigError,
    LocalProvider,
    ProviderError,
    choose,
    ensure_from_hub,
    find_cache_folder,
    open_provider,
)

pytestmark = [pytest.mark.anyio, pytest.mark.once]
pytest.importorskip("huggingface_hub", reason="the extra 'local' is not installed")

CONTENT = b"GGUF" + bytes(range(256)) * 64
SUM = hashlib.sha256(CONTENT).hexdigest()
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = ("m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-F16-00001-of-00002.gguf", "README.md")
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


def listing(sha256: str, size: int) -> dict[str, Any]:
    lfs = {"sha256": sha256, "size": size, "pointerSize": 130}
    siblings = [{"rfilename": name, "size": size, "lfs": lfs} for name in FILES]
    return {"id": "some/model-GGUF", "modelId": "some/model-GGUF", "sha": REVISION, "siblings": siblings}


@dataclass(eq=False)
class LoopbackHub(ThreadingHTTPServer):
    """A hub with one repository that records its requests."""

    sha256: str
    content: bytes
    hold: threading.Event | None
    """If given, only two thirds of a complete file are sent until the event is set."""
    paths: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    """Range headers of the requests for the file; an empty string for the complete file."""

    def __post_init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have disconnected."""


class Handler(BaseHTTPRequestHandler):
    server: LoopbackHub

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.server.content)

    def _answer(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        self.server.paths.append(path)
        if path == "/api/models/some/model-GGUF":
            body = json.dumps(listing(self.server.sha256, len(self.server.content))).encode()
            self._send(200, body, len(body))
        elif path.startswith("/some/model-GGUF/resolve/"):
            self._send_file(body, self.headers.get("Range", ""))
        else:
            self._send(404, b"{}", 2)

    def _send_file(self, body: bytes, part: str) -> None:
        size, hold = len(self.server.content), self.server.hold
        first = int(part.removeprefix("bytes=").removesuffix("-") or 0)
        is_held = hold is not None and bool(body) and not part
        if body:
            self.server.ranges.append(part)
        self._send(206 if part else 200, body[first : size * 2 // 3 if is_held else size], size - first, first)
        if hold is not None and is_held:
            hold.wait(60)

    def _send(self, status: int, body: bytes, size: int, first: int = 0) -> None:
        self.send_response(status)
        if status == 206:
            whole = len(self.server.content)
            self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
        self.send_header("ETag", f'"{self.server.sha256}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def loopback_hub(
    monkeypatch: pytest.MonkeyPatch, sha256: str = SUM, content: bytes = CONTENT, hold: threading.Event | None = None
) -> Iterator[LoopbackHub]:
    with LoopbackHub(sha256, content, hold) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield server
        server.shutdown()


def ignore_progress(done: int, total: int, what: str) -> None:
    pass


@asyncio_only
async def test_a_repository_name_selects_its_usual_quantization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    with loopback_hub(monkeypatch) as asked:
        path = await ensure_from_hub("some/model-GGUF", tmp_path, lambda done, total, _: seen.append((done, total)))
    assert path.name == "m-Q4_K_M.gguf"
    assert path.read_bytes() == CONTENT
    assert f"/some/model-GGUF/resolve/{REVISION}/m-Q4_K_M.gguf" in asked.paths
    assert seen
    assert all(0 <= done <= total == len(CONTENT) for done, total in seen)


@asyncio_only
async def test_a_downloaded_file_is_used_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback_hub(monkeypatch):
        first = await ensure_from_hub("some/model-GGUF/m-Q8_0.gguf", tmp_path, ignore_progress)
    assert await ensure_from_hub("some/model-GGUF/m-Q8_0.gguf", tmp_path, ignore_progress) == first


@asyncio_only
async def test_a_file_with_a_wrong_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback_hub(monkeypatch, sha256="0" * 64), pytest.raises(ProviderError, match="SHA-256 differs"):
        await ensure_from_hub("some/model-GGUF", tmp_path, ignore_progress)
    assert not (tmp_path / "hf" / "some--model-GGUF" / "m-Q4_K_M.gguf").exists()


@asyncio_only
async def test_a_cancelled_download_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = CONTENT * 2_000  # the client of the hub writes chunks of 10 MiB
    hold, scope = threading.Event(), anyio.CancelScope()

    def end(done: int, total: int, what: str) -> None:
        if done:
            scope.cancel()

    sha256 = hashlib.sha256(content).hexdigest()
    with loopback_hub(monkeypatch, sha256, content, hold) as asked, anyio.fail_after(120):
        with scope:
            await ensure_from_hub("some/model-GGUF", tmp_path, end)
        assert scope.cancelled_caught
        hold.set()
        path = await ensure_from_hub("some/model-GGUF", tmp_path, ignore_progress)
    assert path.read_bytes() == content
    assert len(asked.ranges) == 2
    assert 0 < int(asked.ranges[1].removeprefix("bytes=").removesuffix("-")) <= len(content) * 2 // 3


@asyncio_only
async def test_a_missing_repository_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback_hub(monkeypatch), pytest.raises(ProviderError, match="does not list the files of some/other"):
        await ensure_from_hub("some/other", tmp_path, ignore_progress)


async def test_the_error_for_a_missing_file_names_the_existing_files() -> None:
    sized = {"size": 1, "sha256": SUM}
    files = {"revision": REVISION, "files": [{"file": name, **sized} for name in FILES[:3]]}
    with pytest.raises(ConfigError, match=r"has no file x\.gguf") as caught:
        choose(files, "some/model", "x.gguf")
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="no unsplit GGUF file"):
        choose({"revision": REVISION, "files": files["files"][2:]}, "some/model", "")


@pytest.mark.parametrize("name", ["", "model", "../..", "some/..", "some/model/file.bin", "some/mo del", "a//b"])
def test_an_invalid_name_of_a_hub_file_is_refused_at_once(name: str) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    with pytest.raises(ConfigError):
        open_provider(f"local:hf:{name}", models={})


def test_the_environment_may_name_a_file_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    monkeypatch.setitem(os.environ, "DIAL_LOCAL_MODEL", "hf:some/model-GGUF")
    assert LocalProvider().info.name == "local"


@asyncio_only
async def test_a_model_of_the_hub_needs_a_download_until_its_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    provider = LocalProvider("hf:some/model-GGUF")
    assert provider.needs_download
    with loopback_hub(monkeypatch):
        await ensure_from_hub("some/model-GGUF", find_cache_folder(), ignore_progress)
    assert not provider.needs_download


def test_the_embedded_model_needs_a_download_and_a_file_of_the_user_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "own.gguf").write_bytes(CONTENT)
    assert LocalProvider().needs_download
    assert not LocalProvider(str(tmp_path / "own.gguf")).needs_download
