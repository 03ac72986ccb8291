"""A page of the documentation about something to use begins with an example; bounds and rules come after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# Pages about the project, and lists to look things up in.
WITHOUT_EXAMPLE = {
    *(
        "architecture",
        "compare",
        "embedded-model-measurements",
        "first-change",
        "glossary",
        "platforms",
        "security-model",
    ),
    "stability",
}
# The maximum number of lines between the title and the example.
MAX_LINES = 6


@pytest.mark.parametrize("page", sorted({path.stem for path in DOCS.glob("*.md")} - WITHOUT_EXAMPLE))
def test_a_page_begins_with_an_example(page: str) -> None:
    title, *lines = (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines()
    first = next((number for number, line in enumerate(filter(None, lines)) if re.match("```", line)), len(lines))
    assert title.startswith("# ")
    assert first <= MAX_LINES, f"{first} lines come before the example"
