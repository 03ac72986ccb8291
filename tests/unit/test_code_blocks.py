"""The programs of the documentation are files for the type checker, which `make types` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from site_pages.code_blocks import find_programs, main

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]


def test_every_program_of_the_documentation_has_a_file(tmp_path: Path) -> None:
    (tmp_path / "old_1.py").write_text("a program of an earlier page")
    main(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(name for name, _ in find_programs())
    assert any(name.startswith("README_") for name in names)
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    runs = sum(len(re.findall(r"^asyncio\.run\(", page, re.MULTILINE)) for page in pages)
    assert len(names) > runs


def test_the_type_checker_reads_them_in_ci() -> None:
    rule = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntypes:")[2].partition("\n\n")[0]
    assert "site_pages.code_blocks build/code_blocks" in rule
    assert "mypy build/code_blocks" in rule
    assert "types" in next(line for line in (ROOT / ".ci" / "run").read_text().splitlines() if "lint types" in line)
