"""The work of ``dial-chat trust``: trust a file, list trusted files, revoke trust."""

from __future__ import annotations

import json
from pathlib import Path

from dial_client.cli.config_summary import build_rows, escape_line, render_rows
from dial_client.cli.options import ExitCode
from dial_client.cli.trust_prompt import ask_for_trust, find_changes_since, trust_now
from dial_client.cli.tty import can_ask_user
from dial_client.messages.errors import ConfigError
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME, resolve_location
from dial_client.settings.config_trust import EnvFiles, FoundFile, TrustedFile, TrustStore, read_found


async def manage(file: Path | None, *, list_all: bool, revoke: bool, as_json: bool) -> int:
    """Trust a file, list the trusted files, or revoke trust; return the exit code.

    Raises:
        ConfigError: The options contradict each other, there is no such file, or the user cannot be asked.
    """
    if list_all and (revoke or file is not None):
        raise ConfigError(
            "--list cannot be combined with --revoke or FILE", hint="dial-chat trust [FILE] | --list | --revoke [FILE]"
        )
    if list_all:
        _print_list(TrustStore().list(), as_json=as_json)
        return ExitCode.ANSWERED
    path = _resolve_file(file)
    if revoke:
        return _revoke(path)
    return await _ask(path) if file is None else _trust(path, as_json=as_json)


def _resolve_file(file: Path | None) -> Path:
    if file is None:
        return Path(FILE_NAME)
    return file / FILE_NAME if file.is_dir() else file


async def _ask(path: Path) -> int:
    found, env_files = read_found(path), EnvFiles()
    trusted = TrustStore().find(found.location)
    changes = find_changes_since(trusted, found, env_files) if trusted is not None else []
    if trusted is not None and not changes:
        print(f"already trusted: {escape_line(found.location)}")
        return ExitCode.ANSWERED
    if not can_ask_user():
        raise ConfigError("there is no terminal to ask at", hint=f"naming the file trusts it: dial-chat trust {path}")
    agreed = await ask_for_trust(found, env_files, render_rows(changes, None))
    return ExitCode.ANSWERED if agreed else ExitCode.USAGE


def _trust(path: Path, *, as_json: bool) -> int:
    found, env_files = read_found(path), EnvFiles()
    outline = configuration.outline(found.data, str(path))
    trusted = trust_now(found, env_files)
    if as_json:
        print(json.dumps(_as_json(trusted), indent=2))
        return ExitCode.ANSWERED
    print(render_rows(build_rows(outline, env_files, path.parent.absolute()), None))
    print(f"trusted, until it changes: {escape_line(trusted.location)}")
    return ExitCode.ANSWERED


def _revoke(path: Path) -> int:
    location = resolve_location(path)
    try:
        was_trusted = TrustStore().revoke(location)
    except OSError as error:
        raise ConfigError(f"trust cannot be revoked: {error.strerror}", path=str(path)) from None
    print(f"{'not trusted any more' if was_trusted else 'it was not trusted'}: {escape_line(location)}")
    return ExitCode.ANSWERED


def _print_list(files: list[TrustedFile], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_json(trusted) for trusted in files], indent=2))
        return
    for trusted in files:
        print(f"{escape_line(trusted.trusted_at)}  {_find_state(trusted):<9}  {escape_line(trusted.location)}")


def _as_json(trusted: TrustedFile) -> dict[str, object]:
    return {
        "path": trusted.location,
        "target": trusted.target,
        "sha256": trusted.digest,
        "env_files": dict(trusted.env_files),
        "trusted_at": trusted.trusted_at,
        "state": _find_state(trusted),
    }


def _find_state(trusted: TrustedFile) -> str:
    """Return "unchanged", "changed" or "gone" for a trusted file. Its env files are not read."""
    try:
        found: FoundFile = read_found(Path(trusted.location))
    except ConfigError:
        return "gone"
    return "unchanged" if trusted.matches(found) else "changed"
