"""Checks of the configuration files, without starting servers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dial_client.cli.doctor.file_readings import EntryReading, FileReading, to_finding
from dial_client.cli.doctor.findings import Finding, Fix
from dial_client.cli.doctor.subject import Subject
from dial_client.messages.errors import ConfigError
from dial_client.runtime.network_environment import is_loopback
from dial_client.servers.secret_masking import find_literal_secrets, find_secrets
from dial_client.servers.server_cache import compute_identity
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME
from dial_client.settings.config_types import ServerSettings
from dial_client.settings.host_documents import describe_folder_servers

# The permission bits of group and other users.
GROUP_AND_OTHERS = 0o077


def check_files(subject: Subject) -> Iterator[Finding]:
    """Yield the errors in each file, and in the combination of all files."""
    for reading in subject.readings:
        yield from reading.findings
    if not subject.readings:
        text = "there is no servers.json here or in your configuration folder"
        yield Finding("DC115", text, describe_folder_servers(Path.cwd()) or "`dial-chat init` writes one")
    if not any(reading.findings for reading in subject.readings):
        files = [replace(file, environ=file.environ or subject.environ) for file in subject.files]
        try:
            configuration.combine(files, subject.profile)
        except ConfigError as error:  # it arises only when all files are combined
            yield to_finding(error)


def check_trust(subject: Subject) -> Iterator[Finding]:
    """Yield the files that are not trusted, or have changed since."""
    for reading in subject.readings:
        if not reading.is_trusted:
            hint = f"read it, then run `dial-chat trust {reading.path}`; without it other commands end here"
            yield Finding("DC114", "the file is not used until you trust it", hint, reading.path)
    if subject.left_out:
        text = f"changes since you trusted the file are not used: {subject.left_out}"
        yield Finding("DC114", text, "`dial-chat trust` shows the changes and asks", FILE_NAME)


def check_entries(subject: Subject) -> Iterator[Finding]:
    """Yield secrets in plain text, secrets that are sent without encryption, missing folders, and duplicate servers."""
    for reading in subject.readings:
        for name, entry in reading.servers.items():
            yield from _check_literal_secrets(name, entry)
            if entry.settings is not None:
                yield from _check_settings(name, entry, entry.settings)
    yield from _check_duplicates(subject)


def _check_literal_secrets(name: str, entry: EntryReading) -> Iterator[Finding]:
    value: Any = entry.node.value
    for place, variable in find_literal_secrets(value if isinstance(value, Mapping) else {}):
        keys = tuple(place.split(".", 1))
        text = f"server {name!r}: {place} seems to contain a secret in plain text"
        yield Finding("DC110", text, f"set a variable, and write ${{{variable}}} instead", *entry.find_place(*keys))


def _check_settings(name: str, entry: EntryReading, settings: ServerSettings) -> Iterator[Finding]:
    url = settings.url or ""
    if url.startswith("http:") and not is_loopback(url) and find_secrets(settings):
        text = f"server {name!r}: a secret is sent to {urlsplit(url).hostname} without encryption"
        yield Finding("DC112", text, "use an https:// address", *entry.find_place("url"))
    if settings.enabled and settings.cwd and not Path(settings.cwd).is_dir():
        yield Finding("DC113", f"server {name!r}: the folder of cwd does not exist", "", *entry.find_place("cwd"))


def _check_duplicates(subject: Subject) -> Iterator[Finding]:
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for name, settings in subject.servers.items():
        key = (compute_identity(settings), tuple(sorted(settings.env.items())))
        if key in seen:
            text = f"server {name!r} is the same as {seen[key]!r}: the model gets each tool twice"
            yield Finding("DC117", text, "remove or disable one of the two", *subject.find_place(name))
        seen.setdefault(key, name)


def check_permissions(subject: Subject) -> Iterator[Finding]:
    """Yield the files with secrets that other users of the machine can read (POSIX)."""
    if sys.platform == "win32":
        return
    for path in _find_secret_files(subject.readings):
        mode = os.stat(path).st_mode  # noqa: PTH116 - a file that was just read
        if mode & GROUP_AND_OTHERS:
            text = f"other users of this machine can read this file with secrets (mode {mode & 0o777:o})"
            yield Finding("DC111", text, f"chmod 600 {path}", path, fix=Fix("chmod 600", path, mode=0o600))


def _find_secret_files(readings: tuple[FileReading, ...]) -> Iterator[str]:
    for reading in readings:
        values = [entry.node.value for entry in reading.servers.values() if isinstance(entry.node.value, Mapping)]
        if os.path.isfile(reading.path) and any(any(find_literal_secrets(value)) for value in values):  # noqa: PTH113 - it may not be a path
            yield reading.path
        for value in values:
            env_file = value.get("envFile")
            if reading.is_trusted and isinstance(env_file, str) and not re.search(r"\$\{|^~", env_file):
                path = Path(reading.path).parent / env_file
                if path.is_file():
                    yield str(path)
