"""Files outside of docs/ as pages of the site, and links to files that are not pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
"""Files of the repository, and the pages that show them."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#|data:)([^)\s#]+)(#[^)\s]*)?\)")


def read_root_page(name: str) -> str:
    """Return the text of a file outside of docs/, with links adapted to its page on the site."""
    return adapt_links((ROOT / name).read_text(encoding="utf-8"), name)


def adapt_links(text: str, source: str) -> str:
    """Return a text whose links lead to pages of the site; a link to another file of the repository becomes its label.

    Args:
        text: the Markdown text.
        source: the path of the text's file in the repository.
    """
    folder = posixpath.dirname(source)
    page_folder = posixpath.dirname(PAGES.get(source, source.removeprefix("docs/")))

    def adapt(match: re.Match[str]) -> str:
        mark, label, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        page = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if page is None or (ROOT / path).is_dir():
            return label
        return f"{mark}[{label}]({posixpath.relpath(page, page_folder or '.')}{anchor or ''})"

    return _LINK.sub(adapt, text)
