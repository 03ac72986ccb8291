"""Icons of tools, resources and prompts: for programs that show them; nothing here fetches one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_ICONS = 8
MAX_SOURCE = 100_000
"""Characters of a source: a ``data:`` address holds the image itself."""


@dataclass(frozen=True, slots=True)
class Icon:
    """One icon. An SVG may hold a script: show it as an image only."""

    src: str
    """An ``https:`` or ``data:`` address (MCP 2025-11-25, "Icons": others must not be used), as the server gives it."""
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    """Like ``48x48``, or ``any``."""

    def to_dict(self) -> dict[str, Any]:
        """Give JSON types only."""
        return {"src": self.src, "mime_type": self.mime_type, "sizes": list(self.sizes)}


def icons_of(given: Iterable[Any] | None) -> tuple[Icon, ...]:
    """Take over what a server gives (`mcp_types.Icon`), without what must not or could not be shown."""
    usable = (one for one in given or () if one.src.startswith(("https:", "data:")) and len(one.src) <= MAX_SOURCE)
    kept = (Icon(one.src, one.mime_type, tuple(one.sizes or ())) for one in usable)
    return tuple(icon for icon, _ in zip(kept, range(MAX_ICONS), strict=False))
