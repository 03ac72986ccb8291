"""All versions of the site in one folder: `python -m site_pages.site_versions 0.2.0` adds the built site as a version.

The folder has a subfolder for each version, `latest` with the newest, and `versions.json` in the format of `mike`,
which the list of versions on each page reads. It contains only static files, so that any web server can publish it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

LATEST = "latest"
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>dial-client</title>
<meta http-equiv="refresh" content="0; url=latest/index.html">
<a href="latest/index.html">Documentation of the latest version</a>
"""


def add_version(version: str, site: Path, versions: Path) -> list[str]:
    """Copy a built site into the folder of versions, and return the names of all versions, the newest first.

    Releases of one minor version share a folder: a release replaces the previous one.

    Raises:
        ValueError: the version does not have the form `X.Y.Z`.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+\w*", version):
        raise ValueError(f"expected a version such as 0.2.0, not {version!r}")
    titles = read_titles(versions)
    name = ".".join(version.split(".")[:2])
    titles[name] = version
    names = sorted(titles, key=_order, reverse=True)
    _copy(site, versions / name)
    _copy(versions / names[0], versions / LATEST)
    entries = [
        {"version": known, "title": titles[known], "aliases": [LATEST] if known == names[0] else []} for known in names
    ]
    (versions / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (versions / "index.html").write_text(_REDIRECT, encoding="utf-8")
    return names


def read_titles(versions: Path) -> dict[str, str]:
    """Return the full version of each existing folder."""
    try:
        entries = json.loads((versions / "versions.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {entry["version"]: entry["title"] for entry in entries}


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("."))


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


if __name__ == "__main__":
    sys.stdout.write("\n".join(add_version(sys.argv[1], Path("build/site"), Path("build/versions"))) + "\n")
