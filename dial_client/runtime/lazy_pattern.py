"""Regular expressions that are compiled when they are first used.

Compiling those of all modules was a quarter of what the import of `DialClient` calls, and a turn needs few of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def compile_lazily(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what ``re.compile`` would, for use by its methods and attributes; an invalid pattern fails at its use."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the compiled pattern, which is from then on one of this object."""
        value = getattr(re.compile(self._pattern, self._flags), name)  # `re` keeps what it has compiled
        setattr(self, name, value)
        return value
