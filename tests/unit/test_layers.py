"""Import rules of the code, read from its syntax trees, and alarms for files and functions of absurd sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dial_client"
FILES = sorted(PACKAGE.rglob("*.py"))
OTHER_FILES = sorted(
    path for folder in ("tests", "evals", "benchmarks", "probes", "examples") for path in (ROOT / folder).rglob("*.py")
)

MAX_FILE = 800
MAX_FUNCTION = 80
"""Alarms in lines, far from where any file or function stands: they must not shape the code.

The docstrings of a file do not count, so that no line of a public docstring is saved for the alarm.
"""
MAX_RESOLUTION = 60
VAGUE_NAMES = {"utils", "helpers", "base", "types", "common", "misc"}
HEAVY = (
    "openai",
    "anthropic",
    "azure",
    "boto3",
    "botocore",
    "google",
    "acp",
    "mcp",
    "pydantic_monty",
    "mcp_types",
    "xllamacpp",
    "huggingface_hub",
    "sqlalchemy",
    "dbos",
    "psycopg",
    "jsonschema_rs",
    "rich",
)


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each module; parsed on first use, not when tests are collected."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """Return the nodes of the syntax tree of each module."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield each function with its file."""
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function, from ``def`` to its last line, with its docstring."""
    return (function.end_lineno or 0) - function.lineno + 1


def count_lines(path: Path) -> int:
    """Return the number of lines of a file without its docstrings."""
    source = path.read_text(encoding="utf-8")
    docstrings = (
        node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.end_lineno
    )
    return len(source.splitlines()) - sum(docstrings)


def test_no_file_is_longer_than_anybody_means() -> None:
    long = [path for path in FILES + OTHER_FILES if path.read_bytes().count(b"\n") > MAX_FILE]
    assert {name(path): count for path in long if (count := count_lines(path)) > MAX_FILE} == {}
    assert len((PACKAGE / "turns" / "resolution.py").read_text(encoding="utf-8").splitlines()) <= MAX_RESOLUTION
    assert [name(path) for path in FILES + OTHER_FILES if path.stem in VAGUE_NAMES] == []


def test_no_function_is_longer_than_anybody_means() -> None:
    lengths = {f"{name(path)}: {function.name}": length(function) for path, function in functions()}
    assert {function: count for function, count in lengths.items() if count > MAX_FUNCTION} == {}


# No module imports these at its top: they are loaded when a server connects.
LOADED_LATE = {
    PACKAGE / "servers" / "transports" / f"{name}.py"
    for name in (
        "transport_errors",
        "direct_calls",
        "rate_limit",
        "streamable_http",
        "jsonrpc_lines",
        "response_repair",
        "stdio",
        "windows_stdio",
    )
} | {
    PACKAGE / "servers" / "oauth" / f"{name}.py"
    for name in ("server_auth", "lenient_documents", "client_credentials", "identity_assertion", "authorization")
}
LOADED_LATE |= {PACKAGE / "servers" / f"{name}.py" for name in ("tasks", "input_rounds")}
LOADED_LATE.add(PACKAGE / "tools" / "skills" / "skill_requests.py")
# The gateway is a server of the SDK: nothing loads it but the command, and the service that mounts it.
LOADED_LATE |= set((PACKAGE / "gateway").glob("*.py"))
# The agent for editors is loaded by its command alone.
LOADED_LATE |= set((PACKAGE / "acp").glob("*.py"))
# Loaded while the model thinks about its first answer.
LOADED_LATE |= {
    PACKAGE / "cli" / "markdown" / f"{name}.py" for name in ("block_renderer", "highlighter", "inline_markup")
}


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    at_the_top = [
        f"{name(path)}: {module}"
        for path, tree in trees().items()
        if path not in LOADED_LATE
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if module.split(".")[0] in HEAVY
    ]
    assert at_the_top == []


def test_no_group_of_a_regular_expression_is_possessive() -> None:
    """Up to Python 3.11.4, ``(?:…)*+`` matches wrongly if the group can match in several ways (gh-106052).

    ``(?>(?:…)*)`` means the same and is right in every version.
    """
    possessive = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+")
    offenders = [
        f"{name(path)}:{node.lineno}: {node.value}"
        for path, found in nodes().items()
        for node in found
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and possessive.search(node.value)
    ]
    assert not offenders, offenders


def test_type_checking_imports_are_for_third_party_packages_only() -> None:
    ours = [
        f"{name(path)}: {imported.module}"
        for path, tree in trees().items()
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for imported in ast.walk(block)
        if isinstance(imported, ast.ImportFrom) and "dial_client" in (imported.module or "")
    ]
    assert ours == []


PROGRAMS = (
    "tests/support/servers/",
    "tests/support/durable_worker.py",
    "tests/support/conversation_program.py",
    "tests/support/fork_",
)
"""Programs that run without the package of the tests."""
PUBLIC_MODULES = ("dial_client", "dial_client.extend", "dial_client.serve", "dial_client.testing")
INNER_IMPORT = re.compile(r"^\s*from dial_client\.(?!(?:extend|serve|testing) import)", re.MULTILINE)
"""An import of an inner module, or a text that looks like one: only files with such a line are parsed."""


def test_tests_reach_inner_modules_through_one_list() -> None:
    offenders = [
        f"{name(path)}:{node.lineno}: {node.module}"
        for path in OTHER_FILES
        if name(path).startswith("tests/") and not name(path).startswith(PROGRAMS)
        if INNER_IMPORT.search(source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dial_client"
        if node.module not in PUBLIC_MODULES
    ]
    assert offenders == [], "add the name to tests/inner.pyi, and import it from tests.inner"
