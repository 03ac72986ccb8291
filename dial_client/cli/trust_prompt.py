"""Trust in a configuration of the working folder: the question, and the work of ``dial-chat trust``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from anyio import lowlevel

from dial_client.cli.options import ExitCode
from dial_client.cli.trust_summary import SummaryRow, build_rows, number_lines, render_rows, summarize_counts
from dial_client.cli.tty import Unanswered, ask_for_line, can_ask_user
from dial_client.cli.word_wrap import find_terminal_width
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME, resolve_location
from dial_client.settings.config_trust import UNREADABLE, EnvFiles, FoundFile, TrustedFile, TrustStore, read_found
from dial_client.settings.config_values import build_variables

_QUESTION = "[t]rust, [n]ot now, [v]iew the whole file: "
_MAX_LINES = 4000
"""The maximum lines of both texts together for a comparison, which takes quadratic time."""


async def is_trusted(found: FoundFile, env_files: EnvFiles, *, may_ask: bool = True) -> bool:
    """Return True if the user trusts a file that was found, and ask if it is new or changed; False for "not now".

    Variables in the file are expanded only after the decision, and the bytes that were shown and hashed are the bytes
    that are used.

    Raises:
        ConfigError: The file is wrong; or it is not trusted, and the user cannot be asked.
    """
    changes = find_changes(found, env_files)
    if changes == []:
        return True
    if not may_ask or not can_ask_user():
        problem = "it has changed since you trusted it" if changes else "you have not trusted it"
        raise ConfigError(
            f"this configuration was found, not named, and {problem}: nothing in it is used",
            hint=f"read it, then run `dial-chat trust {found.path}`, or give --trust to trust it for one run",
            path=found.location,
        )
    return await ask_for_trust(found, env_files, render_rows(changes or (), find_terminal_width(sys.stderr)))


async def ask_for_trust(found: FoundFile, env_files: EnvFiles, changes: str = "") -> bool:
    """Show what a file would do, ask whether to trust it, and store the answer "yes".

    Args:
        found: The file.
        env_files: Reads the env files that it names.
        changes: The changes since the file was trusted, which are shown first.

    Raises:
        ConfigError: The file does not have the form of a configuration.
    """
    outline = configuration.outline(found.data, str(found.path))
    shown = render_rows(build_rows(outline, env_files, found.path.parent.absolute()), find_terminal_width(sys.stderr))
    location = escape_line(found.location)
    if changes:
        _print_to_user(f"This file has changed since you trusted it: {location}", changes)
    else:
        _print_to_user(f"A configuration was found in this folder, which you have not trusted: {location}")
    _print_to_user("It would do this:", shown)
    _print_to_user(summarize_counts(outline))  # last, because a long file pushes its beginning off the screen
    _print_to_user("Its programs run as you, with all your permissions. Nothing in it is used unless you trust it.")
    while True:
        try:
            answer = (await ask_for_line(_QUESTION)).lower()
        except Unanswered:
            await lowlevel.checkpoint()  # if Ctrl-C cancelled the program, this raises the cancellation
            return False
        match answer:
            case "t" | "trust":
                _store_trust(found, env_files)
                return True
            case "n" | "no" | "not now":
                return False
            case "v" | "view":
                _print_to_user(number_lines(found.text, find_terminal_width(sys.stderr)))
            case _:
                _print_to_user("Please answer t, n or v.")


def trust_now(found: FoundFile, env_files: EnvFiles) -> TrustedFile:
    """Store that the user trusts a file with its current content.

    Raises:
        ConfigError: The file does not have the form of a configuration, or the decision cannot be stored.
    """
    store = TrustStore()
    try:
        return store.save(found, _compute_digests(found, env_files))
    except OSError as error:
        raise ConfigError(f"your trust in this file cannot be stored: {error.strerror}", path=str(found.path)) from None


def find_changes(found: FoundFile, env_files: EnvFiles) -> list[SummaryRow] | None:
    """Return the changes of a file since the user trusted it; empty if nothing changed, None if it was not trusted."""
    trusted = TrustStore().find(found.location)
    return None if trusted is None else find_changes_since(trusted, found, env_files)


def find_changes_since(trusted: TrustedFile, found: FoundFile, env_files: EnvFiles) -> list[SummaryRow]:
    """Return the changes of a file and of its env files since they were trusted; empty if nothing changed.

    The env files are read only if the file itself is unchanged.
    """
    if trusted.matches(found):
        return list(_find_env_changes(trusted.env_files, _compute_digests(found, env_files)))
    moved = (
        [] if trusted.target == found.target else [SummaryRow(f"  it is now a link to: {escape_line(found.target)}")]
    )
    return moved if trusted.digest == found.digest else [*moved, *_diff(trusted.text, found.text)]


def _store_trust(found: FoundFile, env_files: EnvFiles) -> None:
    try:
        trust_now(found, env_files)
    except ConfigError as error:
        _print_to_user(f"dial-chat: {escape_line(str(error))}: it is trusted for this run only")
    else:
        _print_to_user("Trusted, until it changes; `dial-chat trust --revoke` revokes this.")


def _compute_digests(found: FoundFile, env_files: EnvFiles) -> dict[str, str]:
    names = build_variables(None, found.path.parent, env_files.read)
    return env_files.hash_files(configuration.outline(found.data, str(found.path)), names)


def _find_env_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[SummaryRow]:
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path, UNREADABLE), now.get(path, UNREADABLE)
        if old != new:
            word = "is new" if old == UNREADABLE else "is missing" if new == UNREADABLE else "has changed"
            yield SummaryRow(f"  the env file {word}: {escape_line(path)}")


def _diff(before: str, after: str) -> Iterator[SummaryRow]:
    from difflib import unified_diff

    old, new = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (before, after))
    if len(old) + len(new) > _MAX_LINES:
        yield SummaryRow("  (too many lines to be compared here)")
        return
    lines = list(unified_diff(old, new, "trusted", "now", lineterm=""))
    yield from (SummaryRow(f"  | {escape_line(line)}") for line in lines)
    if not lines:
        yield SummaryRow("  (only the encoding, the line ends, or bytes that are not text)")


def _print_to_user(*texts: str) -> None:
    print("\n".join(texts), file=sys.stderr, flush=True)


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
    path = file or Path(FILE_NAME)
    if path.is_dir():
        path /= FILE_NAME
    if revoke:
        return _revoke(path)
    return await _ask(path) if file is None else _trust(path, as_json=as_json)


async def _ask(path: Path) -> int:
    found, env_files = read_found(path), EnvFiles()
    changes = find_changes(found, env_files)
    if changes == []:
        print(f"already trusted: {escape_line(found.location)}")
        return ExitCode.ANSWERED
    if not can_ask_user():
        raise ConfigError("there is no terminal to ask at", hint=f"naming the file trusts it: dial-chat trust {path}")
    agreed = await ask_for_trust(found, env_files, render_rows(changes or (), None))
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
