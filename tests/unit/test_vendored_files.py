"""The vendored files of the page match the manifest, and each package has its licence."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "dial_client" / "serve" / "page" / "vendor"
PACKAGES = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))["packages"]
LICENCES = {"MIT", "BSD-3-Clause", "Apache-2.0", "ISC"}


def test_each_vendored_file_has_the_hash_of_the_manifest() -> None:
    hashes = {file["file"]: file["sha256"] for package in PACKAGES for file in package["files"]}
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert found == hashes


def test_each_vendored_package_has_an_exact_version_and_its_licence() -> None:
    assert [package["name"] for package in PACKAGES if not re.fullmatch(r"\d+\.\d+\.\d+", package["version"])] == []
    assert {package["license"] for package in PACKAGES} <= LICENCES
    for package in PACKAGES:
        licence = (VENDOR / package["license_file"]).read_text(encoding="utf-8")
        assert "Copyright" in licence


def test_vendored_files_load_no_source_map_and_nothing_from_another_host() -> None:
    loading = re.compile(r"sourceMappingURL|importScripts\(|\bimport\(\s*[\"']https?:|\bfrom\s*[\"']https?:")
    assert [path.name for path in VENDOR.rglob("*.js") if loading.search(path.read_text(encoding="utf-8"))] == []
