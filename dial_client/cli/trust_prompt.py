"""The question whether to trust a configuration that was found in the working folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

from anyio import lowlevel

from dial_client.cli.config_summary import Row, escaped, in_all, numbered, rendered, rows
from dial_client.cli.tty import Unanswered, is_there, typed
from dial_client.errors import ConfigError
from dial_client.settings import configuration
from dial_client.settings.config_trust import UNREADABLE, EnvFiles, FoundFile, TrustedFile, TrustStore
from dial_client.settings.variables import variables

_QUESTION = "[t]rust, [n]ot now, [v]iew the whole file: "
_MOST_LINES = 4000
"""Of both texts together; more are not compared, which takes quadratic time."""


async def is_trusted(found: FoundFile, env_files: EnvFiles, *, may_ask: bool = True) -> bool:
    """Return True if the user trusts a file that was found, if need be after a question; False for "not now".

    Nothing in it is expanded before, and what was shown and hashed is what is read.

    Raises:
        ConfigError: the file is wrong; or it is not trusted, and no question may be asked.
    """
    trusted = TrustStore().find(found.location)
    changes = changes_since(trusted, found, env_files) if trusted is not None else []
    if trusted is not None and not changes:
        return True
    if not may_ask or not is_there():
        problem = "it has changed since you trusted it" if trusted is not None else "you have not trusted it"
        raise ConfigError(
            f"this configuration was found, not named, and {problem}: nothing of it is used",
            hint=f"read it, then run `dial-chat trust {found.path}`, or give --trust to trust it for one run",
            path=found.location,
        )
    return await ask_for_trust(found, env_files, rendered(changes, terminal_width(sys.stderr)))


async def ask_for_trust(found: FoundFile, env_files: EnvFiles, changes: str = "") -> bool:
    """Show what a file would do, ask whether to trust it, and store a yes.

    Args:
        found: The file.
        env_files: Reads the files of variables it names.
        changes: What has changed since it was trusted, to be shown first.

    Raises:
        ConfigError: the file is not made of entries.
    """
    outline = configuration.outline(found.data, str(found.path))
    shown = rendered(rows(outline, env_files, found.path.parent.absolute()), terminal_width(sys.stderr))
    where = escaped(found.location)
    if changes:
        _say(f"This file has changed since you trusted it: {where}", changes)
    else:
        _say(f"A configuration was found in this folder, which you have not trusted: {where}")
    _say("It would do this:", shown)
    _say(in_all(outline))  # last, because a long file pushes its beginning off the screen
    _say("Its programs run as you, with all you may do. Nothing of it is used unless you trust it.")
    while True:
        try:
            answer = (await typed(_QUESTION)).lower()
        except Unanswered:
            await lowlevel.checkpoint()  # where Ctrl-C was meant for the program, it ends here
            return False
        match answer:
            case "t" | "trust":
                _keep(found, env_files)
                return True
            case "n" | "no" | "not now":
                return False
            case "v" | "view":
                _say(numbered(found.text, terminal_width(sys.stderr)))
            case _:
                _say("Please answer t, n or v.")


def trust_now(found: FoundFile, env_files: EnvFiles) -> TrustedFile:
    """Store that the user trusts a file with its present content.

    Raises:
        ConfigError: the file is not made of entries, or this cannot be kept.
    """
    store = TrustStore()
    try:
        return store.save(found, _digests(found, env_files))
    except OSError as error:
        raise ConfigError(f"that you trust this file cannot be kept: {error.strerror}", path=str(found.path)) from None


def changes_since(trusted: TrustedFile, found: FoundFile, env_files: EnvFiles) -> list[Row]:
    """Return how a file and its files of variables differ from those that were trusted; empty where they do not.

    Only a file that is itself as it was trusted has its files of variables read.
    """
    if trusted.matches(found):
        return list(_env_changes(trusted.env_files, _digests(found, env_files)))
    moved = [] if trusted.target == found.target else [Row(f"  it is now a link to: {escaped(found.target)}")]
    return moved if trusted.digest == found.digest else [*moved, *_diff(trusted.text, found.text)]


def _keep(found: FoundFile, env_files: EnvFiles) -> None:
    try:
        trust_now(found, env_files)
    except ConfigError as error:
        _say(f"dial-chat: {escaped(str(error))}: it is trusted for this run only")
    else:
        _say("Trusted, until it changes; `dial-chat trust --revoke` takes that back.")


def _digests(found: FoundFile, env_files: EnvFiles) -> dict[str, str]:
    names = variables(None, found.path.parent, env_files.read)
    return env_files.digests(configuration.outline(found.data, str(found.path)), names)


def _env_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Row]:
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path, UNREADABLE), now.get(path, UNREADABLE)
        if old != new:
            word = "is new" if old == UNREADABLE else "is gone" if new == UNREADABLE else "has changed"
            yield Row(f"  the file of variables {word}: {escaped(path)}")


def _diff(before: str, after: str) -> Iterator[Row]:
    from difflib import unified_diff

    old, new = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (before, after))
    if len(old) + len(new) > _MOST_LINES:
        yield Row("  (too many lines to be compared here)")
        return
    lines = list(unified_diff(old, new, "trusted", "now", lineterm=""))
    yield from (Row(f"  | {escaped(line)}") for line in lines)
    if not lines:
        yield Row("  (only in its encoding, its line ends, or bytes that are no text)")


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of a stream's terminal; None where it is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _say(*texts: str) -> None:
    print("\n".join(texts), file=sys.stderr, flush=True)
