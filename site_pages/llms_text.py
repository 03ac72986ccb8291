"""``llms.txt``: the pages of the site, each with one sentence, for models (llmstxt.org)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from site_pages.root_pages import ROOT


def write_llms_text(pages: Path) -> str:
    """Return the list of pages.

    Args:
        pages: the folder with all pages.
    """
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    head = (f"# {config['site_name']}", "", f"> {config['site_description']}")
    return "\n".join([*head, *_sections(config, pages)]) + "\n"


def _sections(config: dict[str, Any], pages: Path) -> Iterator[str]:
    for part in config["nav"]:
        for title, content in part.items():
            yield from ("", f"## {title}", "")
            for name, path in _entries(content, title):
                yield f"- [{name}]({path}){_first_sentence(pages / path)}"


def _entries(content: Any, title: str) -> Iterator[tuple[str, str]]:
    if isinstance(content, str):
        yield title, content
        return
    for entry in content:
        for name, child in entry.items():
            yield from _entries(child, name)


def _first_sentence(path: Path) -> str:
    """Return the first sentence after the title of a page, prefixed with a colon; empty if there is none."""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        text = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block).split())
        if re.match(r"[A-Z`*]", text):
            return f": {re.split(r'(?<=[.:]) ', text)[0].rstrip(':')}"
    return ""
