"""Accessibility of the page at three widths and in both themes: violations that axe finds, and unreachable controls."""

from __future__ import annotations

from pathlib import Path

from tests.support.browser import Tab
from tests.support.page_geometry import find_unreachable

AXE = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
WHY_NOT = "" if AXE.is_file() else "axe is not installed: `make test` installs it with Node"

# For a preload axe fetches and parses all style sheets, which takes as long as all else; one rule, about orientation,
# reads them. They are the same in every state of a page: the first run reads them.
_ISSUES = """(async () => {
  const preload = !window.hasReadStyles;
  window.hasReadStyles = true;
  const {violations} = await axe.run(document, {resultTypes: ['violations'], iframes: false, preload});
  return violations.flatMap(
    ({id, nodes}) => nodes.map(({target, failureSummary}) => `${id}: ${target.join(' ')}: ${failureSummary}`));
})()"""

WINDOWS = ((320, 640), (768, 1024), (1440, 900))
"""Widths and heights of a phone, a tablet and a screen, in pixels."""
WITH_AXE = {(320, "dark"), (1440, "light")}
"""Widths and themes that axe checks. Axe takes most of the time, and colours depend on the theme only."""


def judge(tab: Tab, state: str) -> list[str]:
    """Return the violations and the unreachable controls of a page in a state, in both themes and at three widths."""
    found = []
    if tab.run("typeof axe") == "undefined":
        tab.run(f"{AXE.read_text(encoding='utf-8')}; null")
    # Themes and widths take turns in an order with few changes, each of which draws the whole page again.
    for theme, windows in (("dark", reversed(WINDOWS)), ("light", WINDOWS)):
        tab.run(f"document.documentElement.dataset.theme = {theme!r}")
        for width, height in windows:
            tab.resize(width, height)
            issues = find_unreachable(tab) + (tab.run(_ISSUES) if (width, theme) in WITH_AXE else [])
            found += [f"{state}, {theme}, {width} px: {issue}" for issue in issues]
    return found
