"""YAML, as goose writes its configuration: plain values of JSON, of bounded size. Files are read, and never written."""

from __future__ import annotations

from datetime import date
from typing import Any

from dial_client.errors import ConfigError

MAX_BYTES = 1024 * 1024
"""Of a file: the parser needs seconds for a mebibyte."""
MAX_VALUES = 100_000
"""Values of a file with each alias replaced: a few lines of aliases of aliases would fill any memory."""
MAX_DEPTH = 100


def read_yaml(data: bytes, path: str) -> dict[str, Any]:
    """Return the mapping in a YAML file: keys are strings, aliases are replaced, dates are text.

    Args:
        data: the content of the file.
        path: for the error message.

    Raises:
        ConfigError: it is not YAML or no mapping, or it is too large or nested too deeply.
    """
    from yaml import YAMLError

    if len(data) > MAX_BYTES:
        raise ConfigError(f"a YAML file has at most {MAX_BYTES:,} bytes", path=path)
    try:
        value = _Copy().copy(_load(data))
    except RecursionError:
        raise ConfigError("it is nested too deeply", path=path) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"this is not YAML: {error}", path=path) from None
    if not isinstance(value, dict):
        raise ConfigError("expected a mapping", path=path)
    return value


def _load(data: bytes) -> Any:
    """Return the value of a file. Merge keys (``<<``) are bounded: those of merged mappings would fill any memory."""
    from yaml import SafeLoader  # it makes plain values only

    class Loader(SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        count = 0

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            self.count += len(node.value)
            if self.count > MAX_VALUES:
                raise ValueError("its aliases make it too large")

    loader = Loader(data)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Copy:
    """Copies a value as values of JSON, and counts what it copies."""

    def __init__(self) -> None:
        self._count = 0

    def copy(self, value: Any, depth: int = 0) -> Any:
        """Return the copy.

        Raises:
            ValueError: there are too many values, or they are nested too deeply.
        """
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            raise ValueError("its aliases make it too large, or it is nested too deeply")
        match value:
            case dict():
                return {str(key): self.copy(child, depth + 1) for key, child in value.items()}
            case list() | tuple() | set():
                return [self.copy(child, depth + 1) for child in value]
            case bytes():
                raise ValueError("binary values have no meaning here")
            case date():
                return value.isoformat()
            case _:
                return value
