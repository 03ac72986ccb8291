"""Trust in a configuration of the working folder: the question, and the work of ``dial-chat trust``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dial_client.cli.options import ExitCode
from dial_client.cli.streams.error_stream import print_to_stderr
from dial_client.cli.streams.tty import can_ask_user
from dial_client.cli.streams.word_wrap import find_terminal_width
from dial_client.cli.trust.folder_texts import SKILL_FILE, ask_for_letter, read_found_skill
from dial_client.cli.trust.trust_review import FileReview, review_file, trust_now
from dial_client.cli.trust.trust_summary import (
    build_change_rows,
    build_rows,
    diff_text,
    number_lines,
    render_rows,
    summarize_counts,
)
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.runtime.text import count_noun
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME, resolve_location
from dial_client.settings.config_trust import EnvFiles, FoundFile, TrustedFile, TrustStore, read_found

_QUESTION = "[t]rust, [n]ot now, [v]iew the whole file: "
_CHANGE_QUESTION = "[t]rust, [n]ot now, [v]iew every line: "
# The maximum lines that show what changed, before the user asks for all of them.
MAX_CHANGE_LINES = 10


async def ask_for_trust(review: FileReview) -> bool:
    """Show what a file would do, ask whether to trust it, and store the answer "yes".

    Variables in the file are expanded only after the decision, and the bytes that were shown and hashed are the bytes
    that are used.

    Raises:
        ConfigError: The file does not have the form of a configuration.
    """
    found = review.found
    outline = configuration.outline(found.data, str(found.path))
    rows = build_rows(outline, review.env_files, found.path.parent.absolute())
    shown = render_rows(rows, find_terminal_width(sys.stderr))
    location = escape_line(found.location)
    if review.trusted is not None:
        print_to_stderr(f"This file has changed since you trusted it: {location}")
        if review.trusted.target != found.target:
            print_to_stderr(f"  it is now a link to: {escape_line(found.target)}")
    else:
        print_to_stderr(f"A configuration was found in this folder, which you have not trusted: {location}")
    print_to_stderr("It would do this:", shown)
    print_to_stderr(summarize_counts(outline))  # last, because a long file pushes its beginning off the screen
    print_to_stderr("Its programs run as you, with all your permissions. Nothing in it is used unless you trust it.")
    while True:
        match await ask_for_letter(_QUESTION):
            case "t" | "trust":
                _store_trust(review)
                return True
            case "n" | "no" | "not now":
                return False
            case "v" | "view":
                print_to_stderr(number_lines(found.text, find_terminal_width(sys.stderr)))
            case _:
                print_to_stderr("Please answer t, n or v.")


async def ask_about_changes(review: FileReview) -> bool:
    """Show what changed in a file that the user trusted, ask whether to trust it now, and store the answer "yes".

    The letter needs Enter: whoever is typing a question while this one appears must not trust a program by it.
    """
    assert review.trusted is not None
    width = find_terminal_width(sys.stderr)
    lines = render_rows(build_change_rows(review.asked), width).split("\n")
    hidden = len(lines) - MAX_CHANGE_LINES
    print_to_stderr(f"This file has changed since you trusted it: {escape_line(review.found.location)}")
    if hidden > 0:
        hidden += 1  # the line that says so
        lines, more = lines[:-hidden], f"… {count_noun(hidden, 'more line')}: v shows all of them"
        print_to_stderr(*lines, more)
    else:
        print_to_stderr(*lines)
    while True:
        match await ask_for_letter(_CHANGE_QUESTION):
            case "t" | "trust" if hidden > 0:
                print_to_stderr("Not all changes were shown: v shows the others.")
            case "t" | "trust":
                _store_trust(review)
                return True
            case "" | "n" | "no" | "not now":
                return False
            case "v" | "view":
                hidden = 0
                print_to_stderr(render_rows(build_change_rows(review.asked), width))
                print_to_stderr(render_rows(diff_text(review.trusted.text, review.found.text), width))
            case _:
                print_to_stderr("Please answer t, n or v.")


def _store_trust(review: FileReview) -> None:
    try:
        trust_now(review.found, review.env_files)
    except ConfigError as error:
        print_to_stderr(f"dial-chat: {escape_line(str(error))}: it is trusted for this run only")
    else:
        print_to_stderr("Trusted, until it changes; `dial-chat trust --revoke` revokes this.")


async def manage(file: Path | None, *, list_all: bool, revoke: bool, as_json: bool) -> int:
    """Trust a file, list the trusted files, or revoke trust; return the exit code.

    Raises:
        ConfigError: The options contradict each other, there is no such file, or the user cannot be asked.
    """
    if list_all and (revoke or file is not None):
        raise ConfigError(
            "--list cannot be combined with --revoke or FILE", hint="dial-chat trust [FILE] | --list | --revoke [FILE]"
        )
    if as_json and not list_all and (revoke or file is None):
        raise ConfigError("--json belongs to --list and to FILE", hint="dial-chat trust --list --json | FILE --json")
    if list_all:
        _print_list(TrustStore().list(), as_json=as_json)
        return ExitCode.ANSWERED
    path = file or Path(FILE_NAME)
    if path.is_dir():
        path /= FILE_NAME
    if revoke:
        return _revoke(path)
    return await _decide(path) if file is None else _trust(path, as_json=as_json)


async def _decide(path: Path) -> int:
    review = review_file(path)
    if review.is_accepted:
        print(f"already trusted: {escape_line(review.found.location)}")
        return ExitCode.ANSWERED
    if not can_ask_user():
        raise ConfigError("there is no terminal to ask at", hint=f"naming the file trusts it: dial-chat trust {path}")
    agreed = await (ask_for_trust(review) if review.changes is None else ask_about_changes(review))
    return ExitCode.ANSWERED if agreed else ExitCode.USAGE


def _trust(path: Path, *, as_json: bool) -> int:
    found, env_files = read_found(path), EnvFiles()
    if path.suffix == ".md":  # instructions or a command for the model
        files = read_found_skill(path.parent).files if path.name == SKILL_FILE else {}
        summary = "\n".join([number_lines(found.text, None), *(f"with {escape_line(name)}" for name in files)])
        trusted = TrustStore().save(found, files)
    else:
        outline = configuration.outline(found.data, str(path))
        summary = render_rows(build_rows(outline, env_files, path.parent.absolute()), None)
        trusted = trust_now(found, env_files)
    if as_json:
        print(json.dumps(_as_json(trusted), indent=2))
        return ExitCode.ANSWERED
    print(summary)
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
