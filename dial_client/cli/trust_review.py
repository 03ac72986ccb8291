"""The state of a configuration that was found: trusted, changed since, or new; and the parts of it that can be used.

A file that has changed is compared with the text that the user trusted, not with the file of the last run: many small
harmless changes are together as harmless as each of them (`settings.config_comparison`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dial_client.cli.trust_summary import (
    SECRET,
    UNPINNED,
    SummaryRow,
    format_member,
    format_value,
    has_unpinned_package,
    hide_value,
)
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import escape_line
from dial_client.settings import configuration
from dial_client.settings.config_comparison import ConfigChange, compare_configs, keep_trusted_parts
from dial_client.settings.config_trust import UNREADABLE, EnvFiles, FoundFile, TrustedFile, TrustStore, read_found
from dial_client.settings.config_types import Outline, OutlineEntry
from dial_client.settings.config_values import build_variables
from dial_client.settings.configuration import ConfigFile

# The maximum lines of both texts together for a comparison, which takes quadratic time.
_MAX_LINES = 4000


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
        known = [] if trusted.digest == found.digest else compare_configs(configuration.outline(trusted.text), after)
        asked = {change.name for change in known if change.kind == "server" and not change.is_harmless}
        servers = {name: entry for name, entry in after.servers.items() if name not in asked}
        changes = (*known, *_find_env_changes(trusted.env_files, servers, found, env_files))
    return FileReview(found, env_files, trusted, changes)


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


def build_change_rows(changes: Iterable[ConfigChange]) -> Iterator[SummaryRow]:
    """Yield rows with ``-`` for the old and ``+`` for the new values of changes; secrets are hidden."""
    for change in changes:
        place = escape_line(change.place)
        if change.kind == "key" or change.key:
            yield from _build_value_rows(place, change.key or change.name, change.before, change.after)
            continue
        yield SummaryRow(f"{'-' if change.after is None else '+'} {place}")
        entry = change.after or {}
        for key, value in entry.items():
            yield from _build_value_rows(f"{escape_line(f'{change.kind} {change.name}: {key}')}", key, None, value)
        if has_unpinned_package([word for key in ("command", "args") for word in _list_words(entry.get(key))]):
            yield SummaryRow(f"  {UNPINNED}")


def _build_value_rows(place: str, key: str, before: Any, after: Any) -> Iterator[SummaryRow]:
    sides = ("-", before), ("+", after)
    if key == "args":  # the order of arguments matters, and what stayed the same helps to understand what is new
        yield from (
            SummaryRow(f"{sign} {place}", " ".join(map(format_value, _list_words(value))) or "none")
            for sign, value in sides
            if value is not None
        )
    elif all(value is None or isinstance(value, dict) for _, value in sides):
        yield from _build_member_rows(place, key, before or {}, after or {})
    elif all(value is None or isinstance(value, list) for _, value in sides):
        old, new = (list(map(format_value, value or [])) for _, value in sides)
        gone, added = [text for text in old if text not in new], [text for text in new if text not in old]
        yield from (SummaryRow(f"- {place}", text) for text in gone)
        yield from (SummaryRow(f"+ {place}", text) for text in added)
        if not gone and not added:
            yield SummaryRow(f"+ {place}", "in another order, or another number of times")
    else:
        hides = bool(SECRET.search(key))
        yield from (
            SummaryRow(f"{sign} {place}", hide_value(value) if hides else format_value(value))
            for sign, value in sides
            if value is not None
        )


def _build_member_rows(place: str, key: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[SummaryRow]:
    hides_all = key in ("env", "headers")
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield SummaryRow(f"- {place}", format_value(name))
        elif name not in before or before[name] != after[name]:
            remark = ", another value than before" if name in before else ""
            shown = format_member(name, after[name], hides_all=hides_all, warns=key == "env")
            yield SummaryRow(f"+ {place}", f"{shown}{remark}")


def _list_words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def diff_text(before: str, after: str) -> Iterator[SummaryRow]:
    """Yield the differences of two texts line by line."""
    from difflib import unified_diff

    old, new = (text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in (before, after))
    if len(old) + len(new) > _MAX_LINES:
        yield SummaryRow("  (too many lines to be compared here)")
        return
    lines = list(unified_diff(old, new, "trusted", "now", lineterm=""))
    yield from (SummaryRow(f"  | {escape_line(line)}") for line in lines)
    if not lines:
        yield SummaryRow("  (only the encoding, the line ends, or bytes that are not text)")
