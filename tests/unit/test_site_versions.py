"""Several versions of the documentation site in one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from site_pages.site_versions import add_version, read_titles


def build(folder: Path, text: str) -> Path:
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "index.html").write_text(text)
    return site


def test_each_minor_version_has_a_folder_and_the_newest_is_the_latest(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    for version in ("0.9.0", "0.10.0", "0.9.1"):
        names = add_version(version, build(tmp_path, version), versions)
    assert names == ["0.10", "0.9"], "numbers, not letters, decide which is newer"
    texts = {name: (versions / name / "index.html").read_text() for name in (*names, "latest")}
    assert texts == {"0.10": "0.10.0", "0.9": "0.9.1", "latest": "0.10.0"}
    assert read_titles(versions) == {"0.10": "0.10.0", "0.9": "0.9.1"}
    entries = json.loads((versions / "versions.json").read_text())
    assert [entry["aliases"] for entry in entries] == [["latest"], []]
    assert "latest/index.html" in (versions / "index.html").read_text()


def test_a_page_removed_in_a_patch_version_is_removed_from_its_folder(tmp_path: Path) -> None:
    site, versions = build(tmp_path, "first"), tmp_path / "versions"
    (site / "old.html").write_text("old")
    add_version("1.0.0", site, versions)
    (site / "old.html").unlink()
    add_version("1.0.1", site, versions)
    assert not (versions / "1.0" / "old.html").exists()
    assert not (versions / "latest" / "old.html").exists()


@pytest.mark.parametrize("version", ["", "latest", "../1.0.0", "1.0"])
def test_an_invalid_version_is_an_error(tmp_path: Path, version: str) -> None:
    with pytest.raises(ValueError, match="expected a version such as"):
        add_version(version, build(tmp_path, "text"), tmp_path / "versions")
    assert not (tmp_path / "versions").exists()
