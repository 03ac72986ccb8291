"""Writes the pages of the documentation site into a folder: ``python -m site_pages FOLDER``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from site_pages import api_pages, command_pages, glossary_links, http_pages, llms_text, root_pages, schema_pages
from site_pages.root_pages import ROOT

PROGRAM_PAGES = {
    "codes": schema_pages.write_codes,
    "commands": command_pages.write_commands,
    "http-api": http_pages.write_http_api,
    "servers-json": schema_pages.write_servers_json,
    "testing": api_pages.write_testing_page,
}
"""The reference pages in addition to those of `api_pages.SUBJECTS`."""


def write_pages(folder: Path) -> None:
    """Write all pages and pictures into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    pages = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.md")}
    made = {name: root_pages.adapt_links(text, f"docs/{name}") for name, text in pages.items()}
    made |= {name: glossary_links.link_terms(made[name]) for name in pages if "/" not in name}
    made[glossary_links.PAGE] = glossary_links.add_anchors(
        root_pages.adapt_links(pages[glossary_links.PAGE], "docs/glossary.md")
    )
    made |= {page: root_pages.read_root_page(name) for name, page in root_pages.PAGES.items()}
    made |= {f"reference/{subject}.md": api_pages.write_api_page(subject) for subject in api_pages.SUBJECTS}
    made |= {f"reference/{name}.md": write() for name, write in PROGRAM_PAGES.items()}
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "llms.txt").write_text(llms_text.write_llms_text(folder), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
