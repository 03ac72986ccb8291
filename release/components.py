"""Bills of materials in the CycloneDX 1.6 format: for the vendored files, and for the packages of an environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
VENDOR = ROOT / "dial_client" / "serve" / "page" / "vendor"
VENDORED = ROOT / "release" / "vendored.cdx.json"
"""The bill of materials that is in the wheel, at ``dial_client-*.dist-info/sboms``."""


def describe_vendored_files() -> dict[str, Any]:
    """Return the bill of materials of the third-party files in this package: packages, licences, hashes."""
    packages = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))["packages"]
    return _describe([_describe_npm_package(package) for package in packages])


def describe_environment(distributions: Iterable[Distribution]) -> dict[str, Any]:
    """Return the bill of materials of installed distributions, sorted by name."""
    found = {distribution.metadata["Name"]: distribution for distribution in distributions}
    return _describe([_describe_distribution(found[name]) for name in sorted(found, key=str.lower)])


def write_bill(path: Path, bill: dict[str, Any]) -> None:
    """Write a bill of materials; the same bill gives the same bytes."""
    path.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _describe(components: list[dict[str, Any]]) -> dict[str, Any]:
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}


def _describe_npm_package(package: dict[str, Any]) -> dict[str, Any]:
    purl = f"pkg:npm/{quote(package['name'], safe='/')}@{package['version']}"
    files = [
        {
            "type": "file",
            "name": f"dial_client/serve/page/vendor/{file['file']}",
            "hashes": [{"alg": "SHA-256", "content": file["sha256"]}],
        }
        for file in package["files"]
    ]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "licenses": [{"license": {"id": package["license"]}}],
        "purl": purl,
        "components": files,
    }


def _describe_distribution(distribution: Distribution) -> dict[str, Any]:
    metadata = distribution.metadata
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', metadata['Name']).lower()}@{distribution.version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": metadata["Name"],
        "version": distribution.version,
    }
    licence = find_licence(distribution)
    if licence:
        is_expression = "License-Expression" in metadata
        component["licenses"] = [{"expression": licence} if is_expression else {"license": {"name": licence}}]
    return component | {"purl": purl}


def find_licence(distribution: Distribution) -> str:
    """Return the licence in the metadata of a distribution, in one line; empty if there is none."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in metadata.get_all("Classifier", [])
        if classifier.startswith("License :: ") and classifier != "License :: OSI Approved"
    ]
    text = str(metadata.get_all("License", [""])[0]).strip()
    return ", ".join(names) or text.partition("\n")[0]


if __name__ == "__main__":
    write_bill(VENDORED, describe_vendored_files())
