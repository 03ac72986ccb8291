"""The imports among the scripts of the web page run one way."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "dial_client" / "serve" / "page"
IMPORT = re.compile(r'(?:\bfrom|\bimport)\s*\(?\s*"\./([\w.]+\.js)"')
"""A static import, or a dynamic ``import()``, of another script of the page."""


def read_imports() -> dict[str, set[str]]:
    """Return for each script of the page the scripts that it imports."""
    return {path.name: set(IMPORT.findall(path.read_text("utf-8"))) for path in PAGE.glob("*.js")}


def test_no_script_of_the_page_imports_itself_through_others() -> None:
    imports = read_imports()
    assert imports["tool_card.js"] >= {"app_services.js", "dom.js"}
    assert imports["app_services.js"] >= {"app_frame.js"}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"circle: {' -> '.join(error.args[1])}")
