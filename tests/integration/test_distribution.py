"""Wheel and source distribution: their contents, and reproducible builds."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from release import components
from tests.support.program import LONG

pytestmark = pytest.mark.once
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dial_client"


@dataclass(frozen=True)
class Built:
    """The wheel and the source distribution of a release."""

    wheel: Path
    source: Path

    @property
    def names(self) -> set[str]:
        """The paths in the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def read(self, end: str) -> bytes:
        """Return the content of the only file of the wheel whose path ends with `end`."""
        [name] = [name for name in self.names if name.endswith(end)]
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.read(name)

    @property
    def metadata(self) -> Message:
        return message_from_bytes(self.read(".dist-info/METADATA"))


def build(folder: Path, target: Path) -> Built:
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(target)],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert ran.returncode == 0, ran.stderr
    [wheel], [source] = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(wheel, source)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_the_source_distribution_builds_the_same_bytes_in_another_folder(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.source) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(tmp_path)
    [folder] = tmp_path.iterdir()
    again = build(folder, tmp_path / "dist")
    assert again.wheel.name == built.wheel.name
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.source.read_bytes() == built.source.read_bytes()


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Built) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in built.names if name.startswith("dial_client/")} == files
    assert {name.split("/")[0].split("-")[0] for name in built.names} == {"dial_client"}


@pytest.mark.parametrize(
    "end",
    [
        "dial_client/py.typed",
        "dial_client/__init__.pyi",
        "dial_client/extend.pyi",
        "dial_client/settings/servers.schema.json",
        "dial_client/providers/embedded/template.jinja",
        "dial_client/serve/page/index.html",
        "dial_client/serve/page/style.css",
        "dial_client/serve/page/vendor/manifest.json",
        "share/man/man1/dial-chat.1",
        "share/doc/dial-client/doctor.md",
        ".dist-info/licenses/LICENSE",
        ".dist-info/licenses/dial_client/serve/page/vendor/katex/LICENSE",
        ".dist-info/sboms/vendored.cdx.json",
    ],
)
def test_the_wheel_has_the_required_data_files(built: Built, end: str) -> None:
    assert built.read(end).strip() != b"" or end == "dial_client/py.typed"


def test_both_names_start_the_program(built: Built) -> None:
    scripts = built.read(".dist-info/entry_points.txt").decode()
    assert {"dial-chat = dial_client.cli:main", "dial-client = dial_client.cli:main"} <= set(scripts.splitlines())


def test_the_metadata_names_the_licence_of_each_vendored_package(built: Built) -> None:
    packages = json.loads(built.read("page/vendor/manifest.json"))["packages"]
    expression = built.metadata["License-Expression"].split(" AND ")
    assert set(expression) == {"Apache-2.0", *(package["license"] for package in packages)}
    for package in packages:
        assert built.read(f".dist-info/licenses/dial_client/serve/page/vendor/{package['license_file']}")


def test_the_bill_of_materials_lists_the_vendored_files(built: Built) -> None:
    bill = json.loads(built.read(".dist-info/sboms/vendored.cdx.json"))
    assert bill == components.describe_vendored_files(), "run: python -m release.components"
    names = {component["purl"].split("@")[0] for component in bill["components"]}
    assert {"pkg:npm/katex", "pkg:npm/mermaid"} <= names


def test_the_source_distribution_has_the_files_for_tests_and_documentation(built: Built) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {"Makefile", "servers.json", "requirements-test.lock", "mkdocs.yml", "CHANGELOG.md", "SECURITY.md"}
    assert tracked <= names
    assert {"tests", "docs", "examples", "release"} <= {name.split("/")[0] for name in names}
    assert not [name for name in names if name.startswith(("build/", ".venv", ".git/")) or "__pycache__" in name]
