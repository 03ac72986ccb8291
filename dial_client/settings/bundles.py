"""``.mcpb`` bundles: ZIP archives of a server with a ``manifest.json`` that describes how to start the server.

The manifest's specification is MANIFEST.md of modelcontextprotocol/mcpb. Archives are not trusted: members must stay
inside the target folder and must not be links, and their size and number are limited.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from dial_client.messages.errors import ConfigError, describe_system_error
from dial_client.runtime.json_fields import find_object
from dial_client.runtime.safe_text import to_one_line

# Maximum unpacked bytes of all members together.
MAX_BYTES = 1024**3
MAX_MEMBERS = 50_000
_MAX_MANIFEST = 1024**2
_CHUNK = 1024**2

Value = str | list[str]


@dataclass(frozen=True, slots=True)
class BundleOption:
    """A setting of a bundle for which the user supplies the value (``user_config``)."""

    key: str
    title: str
    is_required: bool
    is_secret: bool
    default: Value | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose manifest was read. Reading does not unpack it."""

    path: Path
    name: str
    version: str
    description: str
    options: tuple[BundleOption, ...]
    manifest: Mapping[str, Any] = field(repr=False)
    members: frozenset[str] = field(repr=False)
    """The names of the archive's members, with slashes."""
    digest: str
    """The SHA-256 of the archive, in hexadecimal."""


def read_bundle(path: Path) -> Bundle:
    """Read the manifest of a bundle.

    Raises:
        ConfigError: The file is not a bundle, or the bundle does not support this platform.
    """
    try:
        with path.open("rb") as packed:
            digest = hashlib.file_digest(packed, "sha256").hexdigest()
        with zipfile.ZipFile(path) as archive:
            members = frozenset(str(_to_path(name)) for name in archive.namelist() if not name.endswith("/"))
            info = archive.getinfo("manifest.json")
            with archive.open(info) as file:
                data = file.read(_MAX_MANIFEST + 1)
        manifest = json.loads(data) if len(data) <= _MAX_MANIFEST else None
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ConfigError(
            f"this is not a bundle of an MCP server: {describe_system_error(error)}", path=str(path)
        ) from None
    server = manifest.get("server") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or not isinstance(server, dict) or not isinstance(manifest.get("name"), str):
        raise ConfigError("the bundle's manifest.json names no server", path=str(path))
    platforms = find_object(manifest, "compatibility").get("platforms")
    if isinstance(platforms, list) and sys.platform not in platforms:
        raise ConfigError(f"the bundle runs on {', '.join(map(str, platforms))}, not on {sys.platform}", path=str(path))
    settings = find_object(manifest, "user_config")
    options = tuple(_read_option(key, find_object(settings, key)) for key in settings)
    about = str(manifest.get("description") or "")
    version = str(manifest.get("version") or "0")
    return Bundle(path, manifest["name"], version, about, options, manifest, members, digest)


def choose_bundle_folder(bundle: Bundle, folder: Path) -> Path:
    """Return the folder, below `folder`, to unpack a bundle into; it differs for archives with different content."""
    parts = (re.sub(r"[^\w.-]+", "-", part).strip(".-") or "bundle" for part in (bundle.name, bundle.version))
    return folder / "-".join((*parts, bundle.digest[:8]))


def unpack_bundle(bundle: Bundle, target: Path) -> None:
    """Unpack a bundle into `target`; an existing folder is replaced.

    Raises:
        ConfigError: A member of the archive has an invalid path, the archive is too large or has changed since it was
            read, or the folder cannot be written.
    """
    folder = target.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder, prefix=".", suffix=".new"))
        copy = part.with_suffix(".mcpb")  # a private copy cannot be changed between the check and the unpacking
        try:
            shutil.copyfile(bundle.path, copy)
            with copy.open("rb") as packed:
                if hashlib.file_digest(packed, "sha256").hexdigest() != bundle.digest:
                    raise ConfigError("the bundle has changed since it was shown", "try again", str(bundle.path))
                with zipfile.ZipFile(packed) as archive:
                    _unpack(archive, part)
            if target.exists():
                shutil.rmtree(target)
            part.replace(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            copy.unlink(missing_ok=True)
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise ConfigError(f"cannot be unpacked: {describe_system_error(error)}", path=str(bundle.path)) from None


def build_bundle_entry(bundle: Bundle, folder: Path, values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the entry of ``servers.json`` for a bundle, whether or not it is unpacked yet.

    Args:
        bundle: The bundle.
        folder: The folder into which it is, or will be, unpacked.
        values: The values of its options. An option without a value gets its default; a required secret gets a
            reference to an environment variable (`build_variable_name`).

    Raises:
        ConfigError: The manifest does not describe how to start the server, or a required option has no value.
    """
    server = find_object(bundle.manifest, "server")
    config = dict(find_object(server, "mcp_config"))
    if not config and server.get("type") == "uv":
        config = {"command": "uv", "args": ["run", "--directory", "${__dirname}", str(server.get("entry_point"))]}
    config |= find_object(config.pop("platform_overrides", None), sys.platform)
    if not isinstance(config.get("command"), str):
        raise ConfigError("the bundle's manifest.json does not describe how to start the server", path=str(bundle.path))
    names = dict(_list_variables(bundle, folder, values))
    command = _find_member(bundle, folder, _fill(config["command"], names))
    entry: dict[str, Any] = {"command": command, "cwd": str(folder)}
    if args := [word for arg in config.get("args") or () for word in _expand_argument(str(arg), names)]:
        entry["args"] = args
    env = {key: _fill(str(value), names) for key, value in find_object(config, "env").items()}
    if env := {key: value for key, value in env.items() if value}:
        entry["env"] = env
    return entry


def _find_member(bundle: Bundle, folder: Path, command: str) -> str:
    """Return the path of a command that is a member of the archive; any other command is returned unchanged."""
    member = command.replace("\\", "/").removeprefix(f"{folder.as_posix()}/")
    for name in (member, f"{member}.exe") if sys.platform == "win32" else (member,):
        path = _to_path(name)
        if str(path) in bundle.members:
            return str(folder.joinpath(*path.parts))
    return command


def _to_path(member: str) -> PurePosixPath:
    return PurePosixPath(member.replace("\\", "/"))


def find_missing_options(bundle: Bundle, values: Mapping[str, Value]) -> list[BundleOption]:
    """Return the required options without value and default; secrets are left out, because they use variables."""
    return [
        option
        for option in bundle.options
        if option.is_required and not option.is_secret and option.key not in values and option.default is None
    ]


def build_variable_name(bundle: Bundle, option: BundleOption) -> str:
    """Return the name of the environment variable for a secret option."""
    return re.sub(r"\W+", "_", f"{bundle.name}_{option.key}").strip("_").upper()


def _list_variables(bundle: Bundle, folder: Path, values: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Yield the variables that a manifest may refer to, with their values."""
    yield "__dirname", str(folder)
    folders = {"HOME": "${userHome}"}
    folders |= {name.upper(): f"${{userHome}}{os.sep}{name}" for name in ("Desktop", "Documents", "Downloads")}
    yield from (("pathSeparator", os.sep), ("/", os.sep), *folders.items())
    if missing := find_missing_options(bundle, values):
        keys = ", ".join(option.key for option in missing)
        raise ConfigError(f"the bundle needs the settings {keys}", f"--set {missing[0].key}=VALUE", str(bundle.path))
    places = {f"${{{name}}}": place for name, place in folders.items()}
    for option in bundle.options:
        value = values.get(option.key, option.default)
        if value is None and option.is_secret:
            value = f"${{{build_variable_name(bundle, option)}}}" if option.is_required else ""
        expanded = _with_places("" if value is None else value, places)
        if option.key not in values and not option.is_secret and "${" in str(expanded).replace("${userHome}", ""):
            raise ConfigError(f"a default in its manifest.json reads an environment variable: {option.key}")
        yield f"user_config.{option.key}", expanded


def _with_places(value: Value, places: Mapping[str, str]) -> Value:
    if isinstance(value, list):
        return [str(_with_places(item, places)) for item in value]
    for name, place in places.items():
        value = value.replace(name, place)
    return value


_REFERENCE = re.compile(r"\$\{([^{}]+)\}")


def _fill(text: str, names: Mapping[str, Value]) -> str:
    def replace_reference(found: re.Match[str]) -> str:
        value = names.get(found[1])
        if value is None:  # left unchanged, it would be expanded from this machine's environment
            raise ConfigError(f"the bundle's manifest.json names an unknown variable: {to_one_line(found[0], 100)}")
        return ",".join(value) if isinstance(value, list) else value

    return _REFERENCE.sub(replace_reference, text)


def _expand_argument(argument: str, names: Mapping[str, Value]) -> list[str]:
    """Return the words for an argument: several for an option with several values, none for an empty optional one."""
    found = _REFERENCE.fullmatch(argument)
    value = names.get(found[1]) if found else None
    if isinstance(value, list):
        return value
    word = _fill(argument, names)
    return [word] if word or value is None else []


def _read_option(key: str, item: Mapping[str, Any]) -> BundleOption:
    default = item.get("default")
    value: Value | None = None
    if isinstance(default, list):
        value = [str(part) for part in default]
    elif default is not None:
        value = json.dumps(default) if isinstance(default, bool | int | float) else str(default)
    title = str(item.get("title") or item.get("description") or key)
    return BundleOption(key, title, item.get("required") is True, item.get("sensitive") is True, value)


def _unpack(archive: zipfile.ZipFile, folder: Path) -> None:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise ConfigError(f"a bundle has at most {MAX_MEMBERS:,} members")
    remaining = MAX_BYTES
    for member in members:
        path = _to_path(member.filename)
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        if path.is_absolute() or is_link or not all(map(_is_plain_name, path.parts)):
            raise ConfigError(f"the path of a member leads out of the bundle: {member.filename[:100]!r}")
        target = folder.joinpath(*path.parts)
        if member.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, target.open("xb") as file:
            while chunk := source.read(_CHUNK):
                remaining -= len(chunk)
                if remaining < 0:
                    raise ConfigError(f"a bundle has at most {MAX_BYTES:,} bytes")
                file.write(chunk)
        if member.external_attr >> 16 & stat.S_IXUSR:
            target.chmod(0o700)


_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(?:\..*)?")


def _is_plain_name(part: str) -> bool:
    """Return True if a part of a path names the same file on every platform.

    Windows reads ``name:x`` as a stream of the file or as a drive, drops blanks and dots at the end of a name, and
    reserves the names of devices. Device names are refused on Windows only, because real packages have such files.
    """
    is_device = sys.platform == "win32" and _DEVICE.fullmatch(part) is not None
    return not (":" in part or "\0" in part or part != part.rstrip(" .") or is_device)
