"""The configuration files in use: the named file; else the user's own file, overridden by the working folder's file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dial_client.cli.options import ACP, GATEWAY, Options
from dial_client.cli.streams.tty import can_ask_user
from dial_client.cli.trust.trust_review import FileReview, describe_changes, note_changes, review_file
from dial_client.messages.errors import ConfigError
from dial_client.settings.config_locations import FILE_NAME, find_config, find_user_config, is_user_config
from dial_client.settings.config_types import ConfigChange
from dial_client.settings.configuration import ConfigFile, read_config_file

# The environment variable that names a profile if ``--profile`` is not given.
PROFILE_VARIABLE = "DIAL_PROFILE"


def find_profile_name(options: Options) -> str | None:
    """Return the name of the profile in use; None if there is none."""
    return options.profile or os.environ.get(PROFILE_VARIABLE) or None


def find_folder_config() -> Path | None:
    """Return the path of ``./servers.json``; None if it does not exist, or is the user's own file."""
    path = find_config()
    return None if path is None or path.is_absolute() or is_user_config(path) else path


@dataclass(frozen=True, slots=True)
class FilesInUse:
    """The configuration files that a run uses."""

    files: list[ConfigFile]
    """The files, the one with the highest precedence last."""
    review: FileReview | None = None
    """The state of the working folder's file; None if there is none, or the user trusts it for this run."""

    @property
    def untrusted(self) -> Path | None:
        """The path of the working folder's file if nothing in it is used; else None."""
        return self.review.found.path if self.review is not None and self.review.changes is None else None

    @property
    def left_out(self) -> tuple[ConfigChange, ...]:
        """The changes of the working folder's file that are not used, because they need a question."""
        return () if self.review is None else self.review.asked


def find_files(config: str | Path | None, *, trust: bool = False) -> FilesInUse:
    """Return the files that are in use without a question.

    Of a file of the working folder that has changed since the user trusted it, the trusted parts are in use.

    Args:
        config: The file to use in place of all others; None to find the files.
        trust: Use the file of the working folder in any case.

    Raises:
        ConfigError: A file cannot be read.
    """
    own = find_user_config() if config is None else find_config(str(config))
    files = [read_config_file(own)] if own is not None else []
    folder_file = find_folder_config() if config is None else None
    if folder_file is None:
        return FilesInUse(files)
    review = review_file(folder_file)
    if trust:
        return FilesInUse([*files, review.to_config_file()])
    if review.changes is None:
        return FilesInUse(files, review)
    return FilesInUse([*files, review.keep_trusted_parts() if review.asked else review.to_config_file()], review)


async def ask_for_files(options: Options, report: Callable[[str], None], *, may_ask: bool = True) -> list[ConfigFile]:
    """Return the files in use: the user's own file, then the file of the working folder as far as it is trusted.

    Args:
        options: The options that name or trust a file.
        report: Gets a message if the file, or a part of it, is left out, or if it has changed without a question.
        may_ask: Ask the user whether to trust the file.

    Raises:
        ConfigError: A file cannot be read; or it is not trusted, and the user cannot be asked; or with ``--strict``,
            a file has changes that need a question, and the user cannot be asked.
    """
    in_use = find_files(options.config, trust=options.trust)
    review = in_use.review
    if review is None:
        return in_use.files
    location, can_ask = review.found.path, may_ask and can_ask_user()
    if not review.is_noted and (harmless := review.harmless):
        report(f"{location} has changed since you trusted it; used without a question: {describe_changes(harmless)}")
        note_changes(review)
    if review.is_accepted:
        return in_use.files
    if review.changes is None and not can_ask:
        problem = "you have not trusted it" if review.trusted is None else "it has changed since you trusted it"
        if options.command in (GATEWAY, ACP) and not options.strict:
            # Another host starts it in any folder: a file of a stranger must not take the user's own servers away.
            report(f"{location} is left out, as {problem}: read it, then run `dial-chat trust {location}`")
            return in_use.files
        raise ConfigError(
            f"this configuration was found, not named, and {problem}: nothing in it is used",
            hint=f"read it, then run `dial-chat trust {location}`, or give --trust to trust it for one run",
            path=review.found.location,
        )
    if can_ask:
        from dial_client.cli.trust import trust_prompt

        is_new = review.changes is None
        if await (trust_prompt.ask_for_trust(review) if is_new else trust_prompt.ask_about_changes(review)):
            return [*in_use.files[: -1 if not is_new else None], review.to_config_file()]
        if is_new:
            own = find_user_config() or "no servers"
            report(f"continuing without the {FILE_NAME} of this folder, with {own}")
            return in_use.files
    changed = f"{location} has changed since you trusted it; not used: {describe_changes(review.asked)}"
    if options.strict and not can_ask:
        raise ConfigError(changed, f"read it, then run `dial-chat trust {location}`", review.found.location)
    report(f"{changed}; `dial-chat trust` shows these changes and asks")
    return in_use.files


def describe_sources(sources: tuple[Path, ...]) -> str:
    """Return the absolute paths of the files in use, or "none". The first file overrides the later files."""
    return ", over ".join(str(path.absolute()) for path in sources) or "none"
