"""The records of decisions are numbered, linked, and kept by things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Kept by", "Revisit when"]


def test_numbers_are_unique_and_without_gaps() -> None:
    assert [path.name[:4] for path in RECORDS] == [f"{n:04}" for n in range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_its_sections_and_is_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= 60
    assert re.search(r"^- Status: (accepted|superseded by \d{4})$", text, re.MULTILINE)
    assert re.search(r"^- Date: \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_what_a_record_is_kept_by_exists(path: Path) -> None:
    kept = path.read_text(encoding="utf-8").split("## Kept by")[1].split("## ")[0]
    named = re.findall(r"`([\w./-]+\.(?:py|toml))`", kept)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_superseding_is_said_on_both_sides() -> None:
    texts = {path.name[:4]: path.read_text(encoding="utf-8") for path in RECORDS}
    for number, text in texts.items():
        for newer in re.findall(r"^- Status: superseded by (\d{4})$", text, re.MULTILINE):
            assert re.search(rf"^- Supersedes: .*\b{number}\b", texts[newer], re.MULTILINE)


def test_the_map_leads_to_every_record() -> None:
    linked = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(set(linked)) == [path.name for path in RECORDS]


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_within_the_repository_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
