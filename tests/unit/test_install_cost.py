"""The tables of installation sizes: the dependencies of a requirement, and the tables in the documents."""

from __future__ import annotations

from packaging.requirements import Requirement

from release.install_cost import Installed, replace_table

INSTALLED = Installed(
    {"dial-client": 1, "sql": 2_000_000, "sql-async": 500_000, "http": 3_000_000, "shared": 250_000},
    {
        "dial-client": (Requirement("sql[async]"), Requirement("http"), Requirement('extra-part; extra == "local"')),
        "sql": (Requirement('sql_async; extra == "async"'), Requirement("shared")),
        "sql-async": (),
        "http": (Requirement("shared"), Requirement('other; python_version < "3"')),
        "shared": (),
    },
)


def test_the_closure_of_a_requirement_includes_its_extras_and_dependencies() -> None:
    assert INSTALLED.find_closure([Requirement("sql")]) == {"sql", "shared"}
    assert INSTALLED.find_closure([Requirement("SQL[async]")]) == {"sql", "sql-async", "shared"}
    assert INSTALLED.find_closure(INSTALLED.direct_requirements()) == {"sql", "sql-async", "http", "shared"}


def test_requirements_of_an_extra_are_listed_separately() -> None:
    assert [required.name for required in INSTALLED.direct_requirements()] == ["sql", "http"]
    assert [required.name for required in INSTALLED.direct_requirements("local")] == ["extra-part"]


def test_a_table_is_replaced_between_its_marks() -> None:
    page = "# Page\n\n<!-- core -->\n\nold\n\n<!-- end of core -->\n\nEnd.\n"
    new = replace_table(page, "core", "| new |")
    assert new == "# Page\n\n<!-- core -->\n\n| new |\n\n<!-- end of core -->\n\nEnd.\n"
    assert replace_table(new, "core", "old") == page
