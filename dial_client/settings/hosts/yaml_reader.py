"""A reader for the YAML of goose's configuration: JSON values only, with limits on size and depth."""

from __future__ import annotations

from datetime import date
from typing import Any

from dial_client.messages.errors import ConfigError

MAX_BYTES = 1024 * 1024
"""Maximum bytes of a file: the parser takes seconds for one mebibyte."""
MAX_VALUES = 100_000
"""Maximum number of values after the expansion of aliases: nested aliases could otherwise fill the memory."""
MAX_DEPTH = 100


def read_yaml(data: bytes, path: str) -> dict[str, Any]:
    """Return the mapping in a YAML file, with string keys, expanded aliases, and dates as strings.

    Args:
        data: The content of the file.
        path: The path of the file, for messages.

    Raises:
        ConfigError: The content is not YAML, is no mapping, is too large, or is nested too deeply.
    """
    from yaml import YAMLError

    if len(data) > MAX_BYTES:
        raise ConfigError(f"a YAML file has at most {MAX_BYTES:,} bytes", path=path)
    try:
        value = _Copy().copy(_load(data))
    except RecursionError:
        raise ConfigError("the YAML is nested too deeply", path=path) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"this is not YAML: {error}", path=path) from None
    if not isinstance(value, dict):
        raise ConfigError("expected a mapping", path=path)
    return value


def _load(data: bytes) -> Any:
    """Return the parsed value. The expansion of merge keys (``<<``) is limited: nested ones could fill the memory."""
    from yaml import SafeLoader  # creates plain values only

    class Loader(SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        count = 0

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            self.count += len(node.value)
            if self.count > MAX_VALUES:
                raise ValueError("the YAML is too large with its aliases")

    loader = Loader(data)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Copy:
    """Converts a value to JSON values, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def copy(self, value: Any, depth: int = 0) -> Any:
        """Return the converted copy.

        Raises:
            ValueError: The value has too many or binary values, or is nested too deeply.
        """
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            raise ValueError("the YAML is too large with its aliases, or is nested too deeply")
        match value:
            case dict():
                return {str(key): self.copy(child, depth + 1) for key, child in value.items()}
            case list() | tuple() | set():
                return [self.copy(child, depth + 1) for child in value]
            case bytes():
                raise ValueError("binary values are not supported")
            case date():
                return value.isoformat()
            case _:
                return value
