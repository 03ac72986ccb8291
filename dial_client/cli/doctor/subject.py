"""The configuration to check, and the parsed files and started servers that the checks share."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import anyio

from dial_client.cli.doctor.file_readings import EntryReading, FileReading, read_file_leniently
from dial_client.client.dial_client import DialClient
from dial_client.messages.limits import Limits
from dial_client.messages.message import ToolSpec
from dial_client.providers.presets import MODELS_OF_KEYS
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings.config_editor import set_value
from dial_client.settings.config_entries import merge_profiles, selects_server
from dial_client.settings.config_types import ModelProfile, Profile, ServerSettings
from dial_client.settings.configuration import ConfigFile
from dial_client.settings.jsonc import read

# Timeout in seconds for servers to become ready.
MAX_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ServerOutcome:
    """The states, tools and problems of the started servers."""

    statuses: Mapping[str, ServerStatus] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds from the start of all servers until each server was ready. Servers that are not ready are missing."""
    tools: tuple[ToolSpec, ...] = ()
    notes: tuple[str, ...] = ()
    """The problems with tools, one line each."""


@dataclass(slots=True)
class Subject:
    """What to check, and what the checks share: files are read once, and servers are started once."""

    files: tuple[ConfigFile, ...] = ()
    """Files in use. The user's own file is the first."""
    untrusted: tuple[ConfigFile, ...] = ()
    """Files that were found but are not trusted. They are read, and their servers are not started."""
    model: str | None = None
    """The value of ``--model``; None to use the model of the configuration files, or the one an API key in the
    environment selects."""
    base_url: str | None = None
    profile: str | None = None
    """The name of the profile in use."""
    database: Path | str | None = None
    """The database of conversations, as a path or URL; None to skip its check."""
    folders: tuple[Path, ...] = ()
    """Folders of this program that must be writable."""
    tool_pins: Path | None = None
    """The folder with the definitions of approved tools."""
    server_seconds: float = MAX_SECONDS
    """Timeout in seconds for servers to become ready."""
    left_out: str = ""
    """What changed in the working folder's file since the user trusted it, and is not used; empty if nothing did."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    readings: tuple[FileReading, ...] = field(init=False)
    """The files, read entry by entry."""
    outcome: ServerOutcome = field(default_factory=ServerOutcome, init=False)
    """The started servers; empty before they are started."""

    def __post_init__(self) -> None:
        self.readings = (
            *(read_file_leniently(file, self.environ) for file in self.files),
            *(read_file_leniently(file, self.environ, is_trusted=False) for file in self.untrusted),
        )

    @property
    def _by_precedence(self) -> list[FileReading]:
        """The files in use, in descending order of precedence."""
        return [reading for reading in reversed(self.readings) if reading.is_trusted]

    @property
    def servers(self) -> dict[str, ServerSettings]:
        """The servers in use whose entries are valid."""
        profile = reduce(merge_profiles, reversed(self._profiles)) if self._profiles else None
        return {
            name: entry.settings
            for reading in reversed(self._by_precedence)
            for name, entry in reading.servers.items()
            if entry.settings is not None and entry.settings.enabled and selects_server(profile, name)
        }

    @property
    def models(self) -> dict[str, ModelProfile]:
        """The model profiles of all files in use."""
        return {name: model for reading in reversed(self._by_precedence) for name, model in reading.models.items()}

    @property
    def limits(self) -> Limits:
        """The limits of turns of all files in use."""
        given = {key: value for reading in reversed(self._by_precedence) for key, value in reading.limits.items()}
        return replace(Limits(), **given)

    @property
    def model_name(self) -> str | None:
        """The model in use: a configured model, or the one that an API key in the environment selects; or None."""
        profile_models = (profile.model for profile in self._profiles)
        default_models = (reading.default_model for reading in self._by_precedence)
        models_of_keys = (model for variable, model in MODELS_OF_KEYS.items() if self.environ.get(variable))
        return self.model or next(filter(None, (*profile_models, *default_models, *models_of_keys)), None)

    @property
    def other_model_names(self) -> set[str]:
        """The names of the other models in all files in use: of profiles, defaults and fallback models."""
        names: set[str | None] = {*self.models}
        for reading in self._by_precedence:
            names |= {reading.default_model, *(profile.model for profile in reading.profiles.values())}
        names |= {name for model in self.models.values() for name in model.fallback_models or ()}
        return {
            name for name in names if name and name != self.model_name and not name.startswith(("local", "scripted:"))
        }

    @property
    def _profiles(self) -> list[Profile]:
        """The profile in use from each file that has it, in descending order of precedence."""
        found = (reading.profiles.get(self.profile or "") for reading in self._by_precedence)
        return [profile for profile in found if profile is not None]

    def build_edit(self, server: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Callable[[str], str]:
        """Return an edit of a file's text. `change` gets a server's entry, and returns new values for its keys."""
        path = tuple(map(str, next(self._find_entries(server)).node.keys))

        def edit(text: str) -> str:
            entry = reduce(lambda value, key: value[key], path, read(text).value)
            for key, value in change(entry).items():
                text = set_value(text, (*path, key), value)
            return text

        return edit

    def find_place(self, server: str, *keys: str | int) -> tuple[str, int, int]:
        """Return file, line and column of a server's entry, or of a value in it."""
        entry = next(self._find_entries(server), None)
        return entry.find_place(*keys) if entry is not None else ("", 0, 0)

    def _find_entries(self, server: str) -> Iterator[EntryReading]:
        """Yield a server's entry from each file that has it, in descending order of precedence."""
        return (reading.servers[server] for reading in self._by_precedence if server in reading.servers)


@asynccontextmanager
async def run_servers(subject: Subject) -> AsyncGenerator[ServerOutcome, None]:
    """Start the servers, give their outcome when each has started or failed or its time is over, and stop them."""
    dial = DialClient(servers=subject.servers, logins=True)
    try:
        await dial.open()
        yield await _watch(dial, subject.server_seconds)
    finally:
        await dial.aclose()


async def _watch(dial: DialClient, seconds_to_start: float) -> ServerOutcome:
    started_at, seconds = anyio.current_time(), dict[str, float]()
    with anyio.move_on_after(seconds_to_start):
        while True:
            statuses = dial.servers
            ready = [name for name, status in statuses.items() if status.state is ServerState.READY]
            seconds.update({name: anyio.current_time() - started_at for name in ready if name not in seconds})
            if all(status.state is not ServerState.STARTING for status in statuses.values()):
                break
            await dial.wait_for_server_change()
    return ServerOutcome(dict(dial.servers), seconds, dial.tools, dial.notes)
