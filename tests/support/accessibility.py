"""The page as axe judges it, and its width."""

from __future__ import annotations

from pathlib import Path

from tests.support.browser import Tab

AXE = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
WHY_NOT = "" if AXE.is_file() else "axe is not here: `make test` installs it with Node"

_ISSUES = """axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.flatMap(
    ({id, nodes}) => nodes.map(({target, failureSummary}) => `${id}: ${target.join(' ')}: ${failureSummary}`)))"""
_OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


def judge(tab: Tab, state: str) -> list[str]:
    """Return the violations in a state of the page, in both themes and two widths."""
    found = []
    if tab.run("typeof axe") == "undefined":
        tab.run(f"{AXE.read_text(encoding='utf-8')}; null")
    for theme, width in (("light", 1280), ("dark", 320)):
        tab.resize(width, 700)
        tab.run(f"document.documentElement.dataset.theme = {theme!r}")
        found += [f"{state}, {theme}, {width} px: {issue}" for issue in tab.run(_ISSUES)]
        if (overflow := tab.run(_OVERFLOW)) > 0:
            found.append(f"{state}, {width} px: {overflow} px too wide")
    tab.resize(1280, 700)
    return found
