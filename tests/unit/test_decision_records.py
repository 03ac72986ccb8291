"""Decision records are numbered, linked, and name existing files that enforce them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Kept by", "Revisit when"]


def test_numbers_are_unique_and_without_gaps() -> None:
    assert [path.name[:4] for path in RECORDS] == [f"{n:04}" for n in range(1, len(RECORDS) + 1)]


def test_every_record_has_its_sections_and_is_short() -> None:
    for path in RECORDS:
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, path.name
        assert len(text.splitlines()) <= 60, path.name
        assert re.search(r"^- Status: (accepted|superseded by \d{4})$", text, re.MULTILINE), path.name
        assert re.search(r"^- Date: \d{4}-\d{2}-\d{2}$", text, re.MULTILINE), path.name


def test_the_files_that_each_record_names_under_kept_by_exist() -> None:
    for path in RECORDS:
        kept = path.read_text(encoding="utf-8").split("## Kept by")[1].split("## ")[0]
        named = re.findall(r"`([\w./-]+\.(?:py|toml))`", kept)
        assert named, path.name
        assert [name for name in named if not (ROOT / name).exists()] == [], path.name


def test_a_superseding_record_names_the_superseded_record() -> None:
    texts = {path.name[:4]: path.read_text(encoding="utf-8") for path in RECORDS}
    for number, text in texts.items():
        for newer in re.findall(r"^- Status: superseded by (\d{4})$", text, re.MULTILINE):
            assert re.search(rf"^- Supersedes: .*\b{number}\b", texts[newer], re.MULTILINE)


def test_the_index_links_every_record() -> None:
    linked = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert sorted(set(linked)) == [path.name for path in RECORDS]


def test_links_within_the_repository_lead_to_existing_files() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []
