"""Data about servers that is kept from run to run: how to open them, their tools, and what the user approved.

JsonCache      a folder with one small JSON file for each server
ServerCache    the protocol to open a server with, and its tools
ToolPins       the tool definitions that were approved, for comparison with the current definitions

A server is identified by how it is reached, not by its name in a configuration: a name may be given to another program.
A file is written atomically, and only its owner can read it. Several programs may use a folder at once; the last write
of a file wins. A file that cannot be read or written counts as missing: a cache never causes a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dial_client.messages.message import ToolSpec
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import read_json_object, write_private
from dial_client.servers.sdk_import import import_sdk
from dial_client.settings.config_types import Protocol, ServerSettings

if TYPE_CHECKING:
    from mcp_types import Tool


log = get_logger(__name__)

# Maximum number of files, and so of servers, in a cache.
MAX_FILES = 200
# Maximum bytes of a file; a larger file is neither written nor read.
MAX_BYTES = 2 * 1024 * 1024
# Version of the file format; a file of another version is not read.
FORM = 1

# Seconds after which a server that spoke the older protocol is probed for the newer one again.
REPROBE_SECONDS = 7 * 24 * 3600.0
# Seconds after which an unchanged file is rewritten, because the cache removes the files written longest ago.
REWRITE_SECONDS = 24 * 3600.0
_IDENTITY = compile_lazily(r"[0-9a-f]{32}")
# Maximum characters of a definition that is stored as text; for a longer definition only the hash is stored.
MAX_TEXT = 16_000


def compute_identity(server: ServerSettings) -> str:
    """Return the identity of a server: a hash of how it is reached, without the values of variables and headers."""
    # Values of variables and headers are left out, because they may be secrets, and change without another server
    # behind them (a new token); another command, folder, URL or set of names may be another program.
    parts = [server.command, *server.args], server.cwd, server.url, sorted(server.env), sorted(server.headers)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class JsonCache:
    """One folder; it is created when a file is first written.

    Args:
        folder: The path of the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def read(self, server: ServerSettings | str) -> dict[str, Any]:
        """Return the stored data of a server, which may be given by its identity; empty without a readable file."""
        value = read_json_object(self.find_path(server), MAX_BYTES)
        return value if value.get("form") == FORM else {}

    def read_definitions(self, server: ServerSettings | str) -> dict[str, dict[str, Any]]:
        """Return the stored tool definitions of a server, each with its hash, by the server's names for its tools."""
        tools = self.read(server).get("tools")
        found = tools.items() if isinstance(tools, dict) else ()
        return {name: stored for name, stored in found if isinstance(stored, dict)}

    def write(self, server: ServerSettings | str, value: Mapping[str, Any]) -> bool:
        """Replace the stored data of a server; return False if it could not be written."""
        try:
            data = json.dumps({"form": FORM, **value}).encode()
            if len(data) > MAX_BYTES:
                return False
            write_private(self.find_path(server), data)
            self._remove_oldest()
        except (OSError, ValueError, TypeError, RecursionError) as error:
            log.debug("cache_not_written", error=type(error).__name__)
            return False
        return True

    def remove(self, server: ServerSettings | str) -> None:
        """Remove the stored data of a server, as far as possible."""
        with suppress(OSError):
            self.find_path(server).unlink(missing_ok=True)

    def list_keys(self) -> tuple[str, ...]:
        """Return the identities of all servers with stored data."""
        try:
            return tuple(sorted(path.stem for path in self._folder.glob("*.json") if _IDENTITY.fullmatch(path.stem)))
        except OSError:
            return ()

    def find_path(self, server: ServerSettings | str) -> Path:
        """Return the path of a server's file, which may be missing."""
        return self._folder / f"{server if isinstance(server, str) else compute_identity(server)}.json"

    def _remove_oldest(self) -> None:
        """Remove the oldest files beyond `MAX_FILES`; another program may remove them at the same time."""
        ages: list[tuple[float, Path]] = []  # a configuration that is generated anew each time would fill the disk
        for path in self._folder.iterdir():
            with suppress(OSError):
                ages.append((path.stat().st_mtime, path))
        for _, path in sorted(ages)[:-MAX_FILES]:
            with suppress(OSError):
                path.unlink()


@dataclass(eq=False)
class ServerCache:
    """Data about one server from the last run of the program. Empty without settings or a cache.

    Args:
        server: How the server is reached; None for a server object in this process.
        cache: The folder to store the data in; None for no storage.
        now: Returns the seconds since 1970.
    """

    _server: ServerSettings | None
    _cache: JsonCache | None
    _now: Callable[[], float] = time.time

    def is_legacy(self) -> bool:
        """Return True if the server spoke the older protocol the last time, and should be opened with its handshake.

        This avoids the probe for the newer protocol, which takes ten seconds if a server ignores unknown requests.
        """
        return self._is_fresh_legacy(self._read())

    def forget_legacy(self) -> None:
        """Record that the server did not start with the handshake of the older protocol."""
        if self._server is not None and self._cache is not None:
            self._cache.write(self._server, self._read() | {"legacy": False})

    def read_tools(self) -> tuple[Tool, ...] | None:
        """Return the valid tools stored in the last run; None if none were stored."""
        stored = self._read().get("tools")
        if not isinstance(stored, list):
            return None
        import_sdk("mcp_types")
        from mcp_types import Tool
        from pydantic import ValidationError

        tools: list[Tool] = []
        for tool in stored:
            try:
                tools.append(Tool.model_validate(tool))
            except ValidationError:
                continue
        return tuple(tools)

    def save(self, tools: Sequence[Tool], *, version: str, is_legacy: bool) -> None:
        """Store the data of a server that is ready.

        Args:
            tools: The server's current tools.
            version: The name and version the server reports. If they changed, the next start probes for the newer
                protocol again.
            is_legacy: The server was opened with the handshake of the older protocol.
        """
        if self._server is None or self._cache is None:
            return
        before = self._read()
        was_legacy = self._is_fresh_legacy(before)
        is_legacy = is_legacy and self._server.protocol is Protocol.AUTO
        state: Mapping[str, Any] = {
            "legacy": is_legacy and not (was_legacy and before.get("version") != version),
            "version": version,
            "tools": _dump_tools(tools),
        }
        is_recent = self._compute_age(before, "written") < REWRITE_SECONDS
        if is_recent and all(before.get(name) == value for name, value in state.items()):
            return
        times = {"since": before["since"] if was_legacy else self._now(), "written": self._now()}
        if not self._cache.write(self._server, {**times, **state}):
            self._cache.write(self._server, {**times, **state, "tools": None})

    def _read(self) -> dict[str, Any]:
        return {} if self._server is None or self._cache is None else self._cache.read(self._server)

    def _is_fresh_legacy(self, stored: Mapping[str, Any]) -> bool:
        return stored.get("legacy") is True and self._compute_age(stored, "since") < REPROBE_SECONDS

    def _compute_age(self, stored: Mapping[str, Any], key: str) -> float:
        """Return the seconds since a stored time; infinity if the time is unknown or in the future."""
        since = stored.get(key)
        is_known = isinstance(since, int | float) and not isinstance(since, bool) and 0 <= since <= self._now()
        return self._now() - since if is_known and since is not None else float("inf")


def _dump_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return tools as they are stored: without icons if these, which may be whole pictures, would fill the file."""
    dumped = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    icons = sum(len(icon.src) for tool in tools for icon in tool.icons or ())
    if icons <= MAX_BYTES // 4:
        return dumped
    return [{name: value for name, value in tool.items() if name != "icons"} for tool in dumped]


# Definitions that are kept: each call of a tool needs its definition several times.
_MAX_DEFINITIONS = 1_000
# The definitions built last, by the identities of the tools, which cannot be hashed.
_definitions: OrderedDict[int, tuple[ToolSpec, str]] = OrderedDict()


def build_definition(tool: ToolSpec) -> str:
    """Return the definition of a tool, as JSON that does not depend on the order of keys."""
    known = _definitions.get(id(tool))
    if known is None:  # the entry keeps the tool alive, so no other object has its identity
        known = _definitions[id(tool)] = tool, _format_definition(tool)
        if len(_definitions) > _MAX_DEFINITIONS:
            with suppress(KeyError):  # another thread was faster
                _definitions.popitem(last=False)
    return known[1]


def _format_definition(tool: ToolSpec) -> str:
    fields = {
        "tool": tool.tool,
        "title": tool.title,
        "description": tool.description.splitlines(),
        "input_schema": tool.original_schema or tool.input_schema,
        "output_schema": tool.output_schema,
        "read_only": tool.read_only,
        "idempotent": tool.idempotent,
        "destructive": tool.destructive,
        "open_world": tool.open_world,
    }
    return json.dumps(fields, indent=2, sort_keys=True, default=str, ensure_ascii=False)


def compare_definitions(before: str, now: str) -> str:
    """Return the difference between two definitions as a unified diff without headers."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), now.splitlines(), n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


class ToolPins:
    """The approved tool definitions, stored from run to run.

    A server may describe a harmless tool until the user has approved it, and change the tool afterwards (a "rug pull").
    Therefore an approval is valid for one definition, not for a name. The definition consists of everything the model
    reads about the tool, and the annotations about its effects.

    Args:
        cache: The folder to store the definitions in.
        servers: How each server is reached, by name. The tools of a server object in this process are never pinned.
    """

    def __init__(self, cache: JsonCache, servers: Mapping[str, Any]) -> None:
        self._cache = cache
        self._servers = servers
        # The definitions approved in this run, by server identity and the server's name for the tool.
        self._approved: dict[tuple[str, str], str] = {}
        # The identities computed last, by the names of the servers: each call needs that of its server several times.
        self._identities: dict[str, tuple[ServerSettings, str]] = {}

    def list_pinned(self, server: str) -> frozenset[str]:
        """Return the tools of a server, by its own names, of which a definition was approved."""
        entry = self._servers.get(server)
        if not isinstance(entry, ServerSettings):
            return frozenset()
        identity = self._find_identity(entry)
        in_this_run = (tool for known, tool in self._approved if known == identity)
        return frozenset((*in_this_run, *self._cache.read_definitions(entry)))

    def describe_change(self, tool: ToolSpec) -> str:
        """Return the diff between a tool's approved and current definitions; empty if equal, or none was approved."""
        entry, now = self._servers.get(tool.server), build_definition(tool)
        if not isinstance(entry, ServerSettings):  # the code of a server object is the user's own
            return ""
        approved = self._approved.get((self._find_identity(entry), tool.tool))
        if approved == now:
            return ""
        # The file comes first: another program may have approved a newer definition. If it cannot be written, or was
        # removed, the approvals of this run still hold.
        pin = self._cache.read_definitions(entry).get(tool.tool) or ({} if approved is None else _pin(approved))
        return describe_change(pin, now)

    def pin(self, tool: ToolSpec) -> None:
        """Store the current definition of a tool as approved."""
        entry, now = self._servers.get(tool.server), build_definition(tool)
        if not isinstance(entry, ServerSettings):
            return
        key = self._find_identity(entry), tool.tool
        if self._approved.get(key) == now:
            return
        self._approved[key] = now
        pins = self._cache.read_definitions(entry)
        if pins.get(tool.tool, {}).get("sha256") == compute_hash(now):
            return
        pins[tool.tool] = _pin(now)
        # Texts are only for showing a change. If they are too long together, the hashes alone still find every change.
        if not self._cache.write(entry, {"tools": pins}):
            self._cache.write(entry, {"tools": {name: {"sha256": pin.get("sha256")} for name, pin in pins.items()}})

    def _find_identity(self, entry: ServerSettings) -> str:
        known = self._identities.get(entry.name)
        if known is None or known[0] is not entry:
            known = self._identities[entry.name] = entry, compute_identity(entry)
        return known[1]


def _pin(text: str) -> dict[str, Any]:
    return {"sha256": compute_hash(text), **({"text": text} if len(text) <= MAX_TEXT else {})}


def describe_change(stored: Mapping[str, Any], now: str) -> str:
    """Return the difference between a stored definition, as `ToolPins` stores it, and another one.

    It is empty if they are equal, or nothing is stored.
    """
    if not stored or stored.get("sha256") == compute_hash(now):
        return ""
    before = stored.get("text")
    is_kept = isinstance(before, str) and len(before) <= MAX_TEXT
    return compare_definitions(
        str(before) if is_kept else "the definition that was approved was too long to be kept", now
    )


def compute_hash(text: str) -> str:
    """Return the SHA-256 of a definition, in hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
