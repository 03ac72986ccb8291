"""Decision records are numbered, linked, and name existing files that enforce them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "Kept by", "Revisit when"]


def read_section(path: Path, name: str) -> str:
    """Return the text of a section of a record."""
    return path.read_text(encoding="utf-8").split(f"## {name}\n")[1].split("\n## ")[0]


def test_numbers_are_unique_and_without_gaps() -> None:
    assert [path.name[:4] for path in RECORDS] == [f"{n:04}" for n in range(1, len(RECORDS) + 1)]


def test_every_record_has_its_sections_and_is_short() -> None:
    for path in RECORDS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {path.name[:4]}. "), path.name
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, path.name
        assert len(text.splitlines()) <= 60, path.name
        assert re.search(r"^- Status: accepted$", text, re.MULTILINE), path.name
        assert re.search(r"^- Date: \d{4}-\d{2}-\d{2}$", text, re.MULTILINE), path.name


def test_every_record_says_what_was_measured_when_and_what_is_bad_about_it() -> None:
    for path in RECORDS:
        decision, consequences = (read_section(path, name) for name in ("Decision", "Consequences"))
        assert re.search(r"[Mm]easured|asked once", decision), path.name
        assert re.search(r"\d{4}-\d{2}-\d{2}|(?:January|[A-Z][a-z]+ber) \d{4}", decision), path.name
        assert re.search(r"\bBad: \S", consequences), path.name


def test_the_files_that_each_record_names_under_kept_by_exist() -> None:
    for path in RECORDS:
        named = re.findall(r"`([\w./-]+\.(?:py|toml))`", read_section(path, "Kept by"))
        assert named, path.name
        assert [name for name in named if not (ROOT / name).exists()] == [], path.name


def test_the_files_of_the_package_that_the_records_name_exist() -> None:
    named = {
        name
        for path in (*RECORDS, FOLDER / "README.md")
        for name in re.findall(
            r"`([\w-]+(?:/[\w-]+)*(?:/|/[\w-]+\.(?:py|js|md|yaml)))`", path.read_text(encoding="utf-8")
        )
    }
    assert {"settings/config_editor.py", "providers/http/"} <= named
    assert (
        sorted(name for name in named if not ((ROOT / name).exists() or (ROOT / "dial_client" / name).exists())) == []
    )


def test_the_index_links_every_record_by_area() -> None:
    areas = (FOLDER / "README.md").read_text(encoding="utf-8").split("## By area")[1].split("\n## ")[0]
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", areas) == [path.name for path in RECORDS]


def test_the_index_says_for_each_superseded_record_what_replaced_it() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8").split("## Superseded")[1]
    rows = re.findall(r"^\| (\d{4}) \| (\S.*?) \| (\S.*) \|$", table, re.MULTILINE)
    assert [number for number, _, _ in rows] == [f"{n:04}" for n in range(1, len(rows) + 1)]
    assert rows


def test_links_within_the_repository_lead_to_existing_files() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []
