"""The page's files, read as text: small, without markup made of text, and without anything of another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "dial_client" / "serve" / "page"
FILES = sorted(path for path in PAGE.iterdir() if path.is_file())
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
"""Names of languages, which nobody fetches."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_page_keeps_to_its_budget(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 400
    assert [line for line in lines if path.suffix == ".js" and len(line) > 125] == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=lambda path: path.name)
def test_no_text_becomes_markup_or_code(path: Path) -> None:
    never = r"(?:inner|outer|insertAdjacent)HTML|document\.write|DOMParser|ContextualFragment|\beval\(|\bFunction\("
    assert re.findall(never, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_taken_from_another_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")
    assert re.findall(r"https?://[\w.]+|@import|url\(", text) == []


def test_the_html_has_no_script_and_no_style_of_its_own() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html) == []
    assert set(re.findall(r'(?:src|href)="assets/([\w.]+)"', html)) <= {path.name for path in FILES}


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=lambda path: path.name)
def test_what_a_module_imports_is_there_and_is_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for names, module in re.findall(r'^import \{ ([^}]+) \} from "\./([\w.]+)";$', text, re.MULTILINE):
        exported = (PAGE / module).read_text(encoding="utf-8")
        for name in names.split(", "):
            assert re.search(rf"^export (?:async )?(?:const|function\*?|class) {name}\b", exported, re.MULTILINE), name
            assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is not used"


def test_what_a_module_uses_of_another_is_imported() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in FILES if path.suffix == ".js"}
    exported = r"^export (?:async )?(?:const|function\*?|class) (\w+)"
    names = {name for text in sources.values() for name in re.findall(exported, text, re.MULTILINE)}
    for module, text in sources.items():
        used = set(re.findall(r"(?:^|[^.#\w\"`]|\.\.\.)(\w+)\(", text)) & names
        imported = set(re.findall(r"\w+", " ".join(re.findall(r"(?:import|const) \{([^}]+)\}", text))))
        own = set(re.findall(r"(?:const|function\*?|class|let|  async|^ ) #?(\w+)\b", text, re.MULTILINE))
        parameters = set(re.findall(r"\w+", " ".join(re.findall(r"\(([^()]*)\) (?:=>|\{)", text))))
        assert used - imported - own - parameters == set(), module
