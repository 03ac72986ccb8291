"""The documentation site has every page and every public name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from site_pages import api_pages, command_pages, root_pages, schema_pages
from site_pages.__main__ import PROGRAM_PAGES
from site_pages.root_pages import ROOT, adapt_links
from tests.inner import CODES

pytestmark = pytest.mark.once


def list_nav_paths(nav: Any) -> list[str]:
    """Return the paths of the pages in the navigation."""
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [path for child in children for path in list_nav_paths(child)]


def test_every_public_name_has_a_place_in_the_reference() -> None:
    assert api_pages.list_missing_names() == []


def test_every_public_class_has_an_example() -> None:
    assert api_pages.list_classes_without_example() == [], "a program in docs/*.md, or one in the docstring"


def test_a_name_is_linked_to_the_sections_that_use_it() -> None:
    page = api_pages.write_api_page("tools")
    assert "Examples of `FunctionTool`: [Caching of results](../middleware.md#caching-of-results)" in page


def test_every_page_has_a_place_in_the_navigation() -> None:
    nav = list_nav_paths(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    made = {*root_pages.PAGES.values(), *(f"reference/{subject}.md" for subject in api_pages.SUBJECTS)}
    assert sorted(set(nav) - {"adr/README.md"}) == sorted(
        pages | made | {f"reference/{name}.md" for name in PROGRAM_PAGES}
    )
    assert len(nav) == len(set(nav))


@pytest.mark.parametrize(
    ("source", "text", "adapted"),
    [
        ("docs/audit.md", "[a](policy.md#rules)", "[a](policy.md#rules)"),
        ("docs/audit.md", "[a](../CHANGELOG.md)", "[a](changelog.md)"),
        ("docs/audit.md", "see [a](../pyproject.toml)", "see a"),
        ("docs/adr/0029-access-to-the-http-server-is-our-own.md", "[a](../../SECURITY.md)", "[a](../security.md)"),
        ("README.md", "![a](docs/serve-page.png) [b](docs/audit.md)", "![a](serve-page.png) [b](audit.md)"),
        ("README.md", "[a](examples) [b](https://example.com/x.md)", "a [b](https://example.com/x.md)"),
    ],
)
def test_links_are_adapted_to_pages_of_the_site(source: str, text: str, adapted: str) -> None:
    assert adapt_links(text, source) == adapted


def test_the_reference_of_commands_has_every_command(tmp_path: Path) -> None:
    page = command_pages.write_commands()
    assert {"## dial-chat doctor", "## dial-chat servers add", "### Examples", "## Exit codes"} <= set(
        page.splitlines()
    )


def test_the_reference_of_servers_json_has_every_key() -> None:
    page = schema_pages.write_servers_json()
    assert "| `command` | text | |" in page.replace("|  |", "| |")
    assert "| `mcpServers` | object of [a server](#a-server) |" in page


def test_the_reference_of_codes_links_each_finding() -> None:
    page = schema_pages.write_codes()
    assert "| [DC101](../doctor.md#dc101-the-file-is-not-json) | error | the file is not JSON |" in page
    assert page.count("../doctor.md#dc") == len(CODES)
