"""Finds what is valid in a configuration, but is probably meant otherwise: unknown keys and odd values of a server."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import find_nearest
from dial_client.settings.config_values import COMMENTS
from dial_client.settings.jsonc import Node

OTHER_HOSTS_KEYS = frozenset(
    (
        *("authProviderType", "description", "dev", "displayName", "gallery", "icon", "iconUrl", "icons", "id"),
        *("keep_alive", "logoUrl", "metadata", "modernLogLevel", "name", "note", "notes", "protocolEra"),
        *("sandbox", "sandboxEnabled", "sse_read_timeout", "tags", "title", "tools", "trust", "version"),
    )
)
"""Keys of other hosts in a server's entry, which have no effect here, and cause no warning."""


class EntryFault(StrEnum):
    """What is odd; the value is the problem in words."""

    UNKNOWN_KEY = "this key is unknown, and has no effect"
    SHORT_TIMEOUT = "less than a second"
    BARE_VARIABLE = "this is not a variable, and is used literally"


@dataclass(frozen=True, slots=True)
class EntryWarning:
    """An odd key or value."""

    fault: EntryFault
    node: Node
    hint: str = ""
    replacement: str = ""
    """The key, or the value, that was probably meant; empty if it is unknown. A value may be a secret."""

    def to_error(self) -> ConfigError:
        """Return the warning as an error with its place in the file."""
        return self.node.build_error(self.fault, self.hint, at_name=self.fault is not EntryFault.BARE_VARIABLE)


def find_unknown_keys(
    unknown: Mapping[str, Node], known: Collection[str], without_effect: Collection[str] = ()
) -> Iterator[EntryWarning]:
    """Yield a warning for each unknown key that is not a comment.

    Args:
        unknown: The unknown members of an object.
        known: The known keys.
        without_effect: Keys that cause no warning.
    """
    for key, node in unknown.items():
        if key not in without_effect and not key.startswith(COMMENTS):
            nearest = find_nearest(key, known)
            yield EntryWarning(EntryFault.UNKNOWN_KEY, node, f'did you mean "{nearest}"?' if nearest else "", nearest)


def find_odd_values(found: Mapping[str, Node]) -> Iterator[EntryWarning]:
    """Yield a warning for each odd value of a server's entry.

    Args:
        found: The members of the entry by their proper keys; values of a wrong type are skipped.
    """
    timeout = found.get("timeout")
    if timeout is not None and isinstance(timeout.value, int | float) and timeout.value < 1000:
        yield EntryWarning(EntryFault.SHORT_TIMEOUT, timeout, "timeout is in milliseconds, toolTimeout in seconds")
    for key in ("env", "headers"):
        node = found.get(key)
        for child in node.read_members().values() if node is not None and isinstance(node.value, Mapping) else ():
            if re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", str(child.value)):
                hint = "a variable is written ${NAME}"
                yield EntryWarning(EntryFault.BARE_VARIABLE, child, hint, f"${{{str(child.value)[1:]}}}")
