"""GGUF files of the model hub: chooses the file of a repository, and finds its size and checksum.

These details are stored with the file, so that a downloaded model needs no network. A separate process queries the hub,
as for a download (`weight_downloads`). The hub's client reads ``HF_ENDPOINT`` and ``HF_TOKEN``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio

from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.model import OnDownload
from dial_client.providers.embedded.weight_downloads import Weights
from dial_client.providers.embedded.weights import ensure

ANSWER_TIMEOUT = 60.0
"""Timeout in seconds for the list of a repository's files."""
PREFERRED = ("q4_k_m", "q4_k_s", "q4_0", "q5_k_m", "q8_0")
"""Quantizations in order of preference if no file is named: small files with little loss of quality first."""

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


def parse_name(name: str) -> tuple[str, str]:
    """Return the repository and the file of ``REPO[/FILE]``; the file is empty if the name has none.

    Raises:
        ConfigError: The name has another form.
    """
    parts = name.split("/")
    if not _NAME.fullmatch(name) or any(set(part) == {"."} for part in parts):
        raise ConfigError(
            f"local:hf:{name} does not name a repository",
            hint="write local:hf:OWNER/NAME or local:hf:OWNER/NAME/FILE.gguf",
        )
    file = "/".join(parts[2:])
    if file and not file.lower().endswith(".gguf"):
        raise ConfigError(f"local:hf:{name}: {file} is not a GGUF file", hint="its name must end in .gguf")
    return "/".join(parts[:2]), file


async def fetch(name: str, models: Path, on_progress: OnDownload) -> Path:
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
    folder = models / "hf" / repository.replace("/", "--")
    memo = folder / f"{re.sub('[^A-Za-z0-9._-]', '_', file) or 'chosen'}.json"
    weights = _read_memo(memo, folder)
    if weights is None:
        weights = choose(await _fetch_listing(repository), repository, file)
        folder.mkdir(parents=True, exist_ok=True)
        memo.write_text(json.dumps(asdict(weights), indent=1), encoding="utf-8")
    return await ensure(weights, folder, on_progress)


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
        raise ConfigError(
            f"{repository} has no unsplit GGUF file", hint="look for a repository whose name ends in -GGUF"
        )
    chosen = files[file or min(whole, key=lambda name: (_rank(name), files[name]["size"]))]
    return Weights(chosen["file"], chosen["size"], chosen["sha256"], repository, listing["revision"], ())


def _rank(name: str) -> int:
    found = (at for at, kind in enumerate(PREFERRED) if kind in name.lower())
    return next(found, len(PREFERRED))


def _read_memo(memo: Path, folder: Path) -> Weights | None:
    """Return the stored details of a file; None if there are none, or if the file is not in `folder`."""
    with suppress(OSError, ValueError, TypeError):
        known = json.loads(memo.read_text(encoding="utf-8"))
        weights = Weights(**{**known, "wheels": ()})
        if (folder / weights.file).is_file():
            return weights
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
