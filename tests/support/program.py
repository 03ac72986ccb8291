"""dial-chat as a person runs it: a process of its own, with folders of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dial_client.settings import configuration
from dial_client.settings.config_trust import EnvFiles, TrustStore, read_found
from dial_client.settings.variables import variables

HERE = Path(__file__).parent
RAW = [sys.executable, "-W", "ignore", str(HERE / "servers" / "raw.py")]
LONG = 100.0
"""Seconds: a guard against waiting for ever, never a measure."""
_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "DIAL_API_KEY", "DIAL_URL")


def entry(behaviour: str, *options: str, **settings: Any) -> dict[str, Any]:
    """Give the servers.json entry of a raw server."""
    return {"command": RAW[0], "args": [*RAW[1:], behaviour, *options], **settings}


def write_config(folder: Path, servers: dict[str, Any] | None = None, replies: Any = None, **more: Any) -> None:
    """Write a servers.json that the user trusts, and the replies of a scripted model as its default."""
    settings: dict[str, Any] = {"mcpServers": servers or {}} | more
    if replies is not None:
        (folder / "replies.json").write_text(json.dumps(replies))
        settings["defaultModel"] = "scripted:${workspaceFolder}/replies.json"
    (folder / "servers.json").write_text(json.dumps(settings))
    trust(folder)


def trust(folder: Path) -> None:
    """Trust the servers.json of `folder`, as the user whose folders lie there too."""
    found, env_files = read_found(folder / "servers.json"), EnvFiles()
    digests = env_files.digests(configuration.outline(found.data), variables(None, folder, env_files.read))
    data = folder / "home" / "xdg_data_home" / "dial-client"
    data = data / "dial-client" if sys.platform == "win32" else data  # there a folder of the author's comes first
    TrustStore(data / "trusted-files").save(found, digests)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Give an environment whose folders of the user lie in `folder`, without any key."""
    env = {name: value for name, value in os.environ.items() if name not in _KEYS}
    home = {
        name: str(folder / "home" / name.lower())
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    }
    if sys.platform == "win32":
        home = {"WIN_PD_OVERRIDE_LOCAL_APPDATA": home["XDG_DATA_HOME"]}
    return env | home | {"HOME": str(folder / "home"), "PYTHONPATH": str(HERE.parents[1])} | more


def dial_chat(folder: Path, *words: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run dial-chat in `folder` to its end, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "dial_client", *words],
        cwd=folder,
        env=environment(folder, **env),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def run_example(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run an example of a document in `folder`, with warnings as errors."""
    (folder / "example.py").write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


@contextmanager
def started(folder: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run dial-chat in `folder`, without a terminal, for as long as this lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "dial_client", *words],
        cwd=folder,
        env=environment(folder, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
