"""The page's files, checked as text: their sizes, no markup from text, no resources of other hosts, and imports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.inner import BUNDLE

PAGE = Path(__file__).parents[2] / "dial_client" / "serve" / "page"
FILES = sorted(path for path in PAGE.iterdir() if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in FILES}
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
"""XML namespaces, which are never fetched."""


def find_in(files: Iterable[Path], pattern: str) -> list[str]:
    """Return the matches of a pattern in files, each after the name of its file."""
    return [f"{path.name}: {found}" for path in files for found in re.findall(pattern, TEXTS[path.name])]


def test_files_of_the_page_are_within_their_size_limits() -> None:
    lines = {name: text.splitlines() for name, text in TEXTS.items()}
    assert {name: len(found) for name, found in lines.items() if len(found) > 800} == {}
    assert [f"{path.name}: {line}" for path in SCRIPTS for line in lines[path.name] if len(line) > 125] == []


def test_no_text_becomes_markup_or_code() -> None:
    never = r"(?:inner|outer|insertAdjacent)HTML|document\.write|DOMParser|ContextualFragment|\beval\(|\bFunction\("
    assert find_in(SCRIPTS, never) == []


def test_the_page_loads_nothing_from_other_hosts() -> None:
    namespaces = "|".join(map(re.escape, NAMESPACES))
    assert find_in(FILES, rf"(?!{namespaces})https?://[\w.]+|@import|url\(") == []


def test_the_html_has_no_inline_script_and_no_inline_style() -> None:
    html = TEXTS["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html) == []
    assert set(re.findall(r'(?:src|href)="assets/([\w.]+)"', html)) <= {*TEXTS, BUNDLE}


def test_every_import_of_a_module_exists_and_is_used() -> None:
    offenders = []
    for path in SCRIPTS:
        text = TEXTS[path.name]
        for names, module in re.findall(r'^import \{ ([^}]+) \} from "\./([\w.]+)";$', text, re.MULTILINE):
            for name in names.split(", "):
                export = rf"^export (?:async )?(?:const|function\*?|class) {name}\b"
                if not re.search(export, TEXTS[module], re.MULTILINE):
                    offenders.append(f"{path.name}: {module} has no {name}")
                if len(re.findall(rf"\b{name}\b", text)) == 1:
                    offenders.append(f"{path.name}: {name} is not used")
    assert offenders == []


def test_every_function_used_from_another_module_is_imported() -> None:
    sources = {path.name: TEXTS[path.name] for path in SCRIPTS}
    exported = r"^export (?:async )?(?:const|function\*?|class) (\w+)"
    names = {name for text in sources.values() for name in re.findall(exported, text, re.MULTILINE)}
    for module, text in sources.items():
        used = set(re.findall(r"(?:^|[^.#\w\"`]|\.\.\.)(\w+)\(", text)) & names
        imported = set(re.findall(r"\w+", " ".join(re.findall(r"(?:import|const) \{([^}]+)\}", text))))
        own = set(re.findall(r"(?:const|function\*?|class|let|  async|^ ) #?(\w+)\b", text, re.MULTILINE))
        parameters = set(re.findall(r"\w+", " ".join(re.findall(r"\(([^()]*)\) (?:=>|\{)", text))))
        assert used - imported - own - parameters == set(), module
