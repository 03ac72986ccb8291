"""The state of a configuration that was found: trusted, changed since, or new; and the parts of it that can be used.

A file that has changed is compared with the text that the user trusted, not with the file of the last run: many small
harmless changes are together as harmless as each of them (`settings.config_comparison`). `trust_summary` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.settings import configuration
from dial_client.settings.config_trust import UNREADABLE, EnvFiles, FoundFile, TrustedFile, TrustStore, read_found
from dial_client.settings.config_types import ConfigChange, Outline, OutlineEntry
from dial_client.settings.config_values import build_variables
from dial_client.settings.configuration import ConfigFile


@dataclass(frozen=True, slots=True)
class FileReview:
    """A configuration that was found, with what the user knows of it."""

    found: FoundFile
    env_files: EnvFiles = field(repr=False)
    trusted: TrustedFile | None = field(default=None, repr=False)
    """The file as the user trusted it; None if it was never trusted."""
    changes: tuple[ConfigChange, ...] | None = None
    """The changes since; None if the file needs trust as a whole, because it is new or cannot be compared."""

    @property
    def asked(self) -> tuple[ConfigChange, ...]:
        """The changes that need a question."""
        return tuple(change for change in self.changes or () if not change.is_harmless)

    @property
    def harmless(self) -> tuple[ConfigChange, ...]:
        """The changes that need no question."""
        return tuple(change for change in self.changes or () if change.is_harmless)

    @property
    def is_accepted(self) -> bool:
        """True if the file can be used as a whole without a question."""
        return self.changes is not None and not self.asked

    @property
    def is_noted(self) -> bool:
        """True if the user was told about the changes of this text before, or it has none."""
        return self.trusted is not None and self.found.digest in (self.trusted.digest, self.trusted.noted)

    def to_config_file(self) -> ConfigFile:
        """Return the file, as it was read for the review."""
        return ConfigFile(self.found.data, str(self.found.path), read=self.env_files.read)

    def keep_trusted_parts(self) -> ConfigFile:
        """Return the file without the changes that need a question.

        Raises:
            ConfigError: The parts cannot be separated.
        """
        from dial_client.settings.config_comparison import keep_trusted_parts

        assert self.trusted is not None
        text = keep_trusted_parts(self.trusted.text, self.found.data, self.changes or ())
        return ConfigFile(text, str(self.found.path), read=self.env_files.read)


def review_file(path: Path) -> FileReview:
    """Read a file that was found, and compare it with what the user trusts.

    Raises:
        ConfigError: The file cannot be read.
    """
    found, env_files = read_found(path), EnvFiles()
    trusted = TrustStore().find(found.location)
    if trusted is None or trusted.target != found.target:
        return FileReview(found, env_files, trusted)
    changes: tuple[ConfigChange, ...] | None = None
    with suppress(ConfigError):  # a text that is no configuration any more has nothing to compare
        after = configuration.outline(found.data, str(path))
        known = [] if trusted.digest == found.digest else _compare(trusted.text, after)
        asked = {change.name for change in known if change.kind == "server" and not change.is_harmless}
        servers = {name: entry for name, entry in after.servers.items() if name not in asked}
        changes = (*known, *_find_env_changes(trusted.env_files, servers, found, env_files))
    return FileReview(found, env_files, trusted, changes)


def _compare(before: str, after: Outline) -> list[ConfigChange]:
    # Imported only for a file that has changed: most starts compare nothing.
    from dial_client.settings.config_comparison import compare_configs

    return compare_configs(configuration.outline(before), after)


def _find_env_changes(
    before: Mapping[str, str], servers: Mapping[str, OutlineEntry], found: FoundFile, env_files: EnvFiles
) -> Iterator[ConfigChange]:
    """Yield a change for each file of variables that has other content than at the time of trust.

    Args:
        before: The trusted digests by path.
        servers: The servers whose entries the user trusts. What other entries name is not read: in Windows, reading a
            network path would open a connection, and a path can have variables.
        found: The file of the servers.
        env_files: Reads the files.
    """
    variables = build_variables(None, found.path.parent, env_files.read)
    for name, entry in servers.items():
        for path, digest in env_files.hash_files(Outline({name: entry}, {}), variables).items():
            old = before.get(path, UNREADABLE)
            if old != digest:
                word = "is new" if old == UNREADABLE else "is missing" if digest == UNREADABLE else "has changed"
                yield ConfigChange("server", name, f"the env file {word}", after=path)


def trust_now(found: FoundFile, env_files: EnvFiles) -> TrustedFile:
    """Store that the user trusts a file with its current content.

    Raises:
        ConfigError: The file does not have the form of a configuration, or the decision cannot be stored.
    """
    variables = build_variables(None, found.path.parent, env_files.read)
    digests = env_files.hash_files(configuration.outline(found.data, str(found.path)), variables)
    try:
        return TrustStore().save(found, digests)
    except OSError as error:
        raise ConfigError(f"your trust in this file cannot be stored: {error.strerror}", path=str(found.path)) from None


def note_changes(review: FileReview) -> None:
    """Store that the user was told about the changes of a file, so that they are not told again."""
    if review.trusted is not None:
        with suppress(OSError):  # they are told again
            TrustStore().note(review.trusted, review.found.digest)


def describe_changes(changes: tuple[ConfigChange, ...]) -> str:
    """Return the places of changes in one line: at most eight, then their number."""
    places = [escape_line(change.place) for change in changes]
    more = f"; and {len(places) - 8} more" if len(places) > 8 else ""
    return "; ".join(places[:8]) + more
