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

import anyio

from tests.inner import KEYS_OF_PRESETS, EnvFiles, TrustStore, build_variables, configuration, read_found
from tests.support.fork_server import FORK_CLIENT, ForkedProcess, can_fork, start_server

HERE = Path(__file__).parent
RAW = [sys.executable, "-W", "ignore", str(HERE / "servers" / "raw.py")]
LONG = 300.0
"""Seconds: a guard against waiting for ever, never a measure."""
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
_ENDPOINTS = (
    *KEYS_OF_PRESETS.values(),
    "OLLAMA_HOST",
    "OPENAI_BASE_URL",
    "ANTHROPIC_BASE_URL",
    "DIAL_API_KEY",
    "DIAL_URL",
)
_UNSET = (*_ENDPOINTS, "PYTHONUNBUFFERED")


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Fail with these words if what runs here has not ended after a part of the time that a test has."""
    with anyio.move_on_after(LONG / 2) as scope:
        yield
    assert not scope.cancelled_caught, f"waited {LONG / 2:.0f} s for {what}"


def entry(behaviour: str, *options: str, **settings: Any) -> dict[str, Any]:
    """Return the servers.json entry of a raw server."""
    return {"command": RAW[0], "args": [*RAW[1:], behaviour, *options], **settings}


def python_server(program: Path | str, *options: str, **settings: Any) -> dict[str, Any]:
    """Return the servers.json entry of a Python file, or a module, for tests that are not about the server's start."""
    arguments = ["-W", "ignore", *([str(program)] if isinstance(program, Path) else ["-m", program]), *options]
    if can_fork([sys.executable], environment(HERE)):
        arguments = ["-S", "-E", str(FORK_CLIENT), start_server(), *arguments]
    return {"command": sys.executable, "args": arguments, **settings}


def write_config(folder: Path, servers: dict[str, Any] | None = None, replies: Any = None, **more: Any) -> None:
    """Write a servers.json that the user trusts, and the replies of a scripted model as its default.

    Turns wait for servers as long as the machine needs to start them.
    """
    settings: dict[str, Any] = {"mcpServers": servers or {}, "startupPatience": LONG} | more
    if replies is not None:
        (folder / "replies.json").write_text(json.dumps(replies))
        settings["defaultModel"] = "scripted:${workspaceFolder}/replies.json"
    (folder / "servers.json").write_text(json.dumps(settings))
    trust(folder)


def trust(folder: Path) -> None:
    """Trust the servers.json of `folder`, as the user whose folders lie there too."""
    found, env_files = read_found(folder / "servers.json"), EnvFiles()
    digests = env_files.hash_files(configuration.outline(found.data), build_variables(None, folder, env_files.read))
    data = folder / "home" / "xdg_data_home" / "dial-client"
    data = data / "dial-client" if sys.platform == "win32" else data  # there a folder of the author's comes first
    TrustStore(data / "trusted-files").save(found, digests)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment whose folders of the user lie in `folder`, without any key, and with the usual buffers."""
    env = {name: value for name, value in os.environ.items() if name not in _UNSET}
    home = {
        name: str(folder / "home" / name.lower())
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    }
    if sys.platform == "win32":
        home = {"WIN_PD_OVERRIDE_LOCAL_APPDATA": home["XDG_DATA_HOME"]}
    # Whatever listens at the usual ports of local model servers is not asked.
    own = {"HOME": str(folder / "home"), "PYTHONPATH": str(HERE.parents[1]), "DIAL_LOCAL_SERVERS": ""}
    return env | home | own | more


def start_python(folder: Path, arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a Python program in `folder`, with the packages of others imported unless DIAL_TEST_FRESH is set."""
    command = [sys.executable, *arguments]
    options = {"env": environment(folder)} | options
    kind: type[subprocess.Popen[Any]] = ForkedProcess if can_fork(command, options["env"]) else subprocess.Popen
    return kind(command, cwd=folder, **options)


def start_dial_chat(folder: Path, *words: str, **options: Any) -> subprocess.Popen[Any]:
    """Start dial-chat in `folder`."""
    return start_python(folder, ["-m", "dial_client", *words], **options)


def run_to_end(process: subprocess.Popen[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Return what a program printed, and its exit code."""
    with process:
        try:
            stdout, stderr = process.communicate(stdin, LONG)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def dial_chat(folder: Path, *words: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run dial-chat in `folder` to its end, without a terminal."""
    variables = environment(folder, **env)
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    return run_to_end(start_dial_chat(folder, *words, env=variables, stdin=source, **PIPES), stdin)


def config_folder(folder: Path) -> Path:
    """Return the user's configuration folder."""
    variables = environment(folder)
    return Path(variables.get("XDG_CONFIG_HOME") or Path(variables["HOME"], ".config")) / "dial-client"


def run_example(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run an example of a document in `folder`, with warnings as errors."""
    (folder / "example.py").write_text(code, encoding="utf-8")
    return run_to_end(start_python(folder, ["-W", "error", "example.py"], **PIPES))


@contextmanager
def started(folder: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run dial-chat in `folder`, without a terminal, for as long as this lasts."""
    with start_dial_chat(folder, *words, env=environment(folder, **env), stdin=subprocess.DEVNULL, **PIPES) as process:
        try:
            yield process
        finally:
            process.kill()
