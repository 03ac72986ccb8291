"""Icons of tools, resources and prompts, for programs that show them. This package does not fetch them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

MAX_ICONS = 8
MAX_SOURCE = 100_000
"""The most characters of a URL; a ``data:`` URL contains the image itself."""


@dataclass(frozen=True, slots=True)
class Icon:
    """An icon. An SVG may contain a script: show it as an image only."""

    src: str
    """An ``https:`` or ``data:`` URL, as the server sends it (MCP 2025-11-25, "Icons": other URLs must not be used)."""
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    """The sizes in pixels, such as ``48x48``, or ``any``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the icon as JSON."""
        return {"src": self.src, "mime_type": self.mime_type, "sizes": list(self.sizes)}


def read_icons(icons: Iterable[Any] | None) -> tuple[Icon, ...]:
    """Return the icons of a server (`mcp_types.Icon`) whose URLs are allowed and not too long."""
    usable = (icon for icon in icons or () if icon.src.startswith(("https:", "data:")) and len(icon.src) <= MAX_SOURCE)
    return tuple(Icon(icon.src, icon.mime_type, tuple(icon.sizes or ())) for icon in islice(usable, MAX_ICONS))
