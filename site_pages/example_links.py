"""Examples of public names: the sections of the guides whose programs use a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from site_pages.root_pages import ROOT
from site_pages.schema_pages import make_anchor


class Section(NamedTuple):
    """A section of a page."""

    page: str
    """The path of the page in docs/."""
    heading: str
    is_title: bool
    """True if the heading is the title of the page."""

    def to_link(self) -> str:
        """Return a link from a page of the reference."""
        anchor = "" if self.is_title else f"#{make_anchor(self.heading)}"
        return f"[{self.heading}](../{self.page}{anchor})"


@cache
def find_examples() -> dict[str, list[Section]]:
    """Return the sections whose programs import a name of `dial_client`, by name."""
    found: dict[str, list[Section]] = {}
    for path in sorted((ROOT / "docs").glob("*.md")):
        for section, block in _list_blocks(path.name, path.read_text(encoding="utf-8")):
            for name in _list_imports(block):
                sections = found.setdefault(name, [])
                if section not in sections:
                    sections.append(section)
    return found


def _list_blocks(page: str, text: str) -> Iterator[tuple[Section, str]]:
    section = Section(page, "", is_title=True)
    for match in re.finditer(r"^(#+) ([^\n]*)$|^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        mark, heading, language, block = match.groups()
        if mark:
            section = Section(page, re.sub(r"[`*]", "", heading), is_title=mark == "#")
        elif language == "python":
            yield section, block


def _list_imports(block: str) -> Iterator[str]:
    tree = compile(block, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dial_client":
            yield from (alias.name for alias in node.names)
