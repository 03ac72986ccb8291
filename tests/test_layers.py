"""Budgets and habits of the code, read from its syntax trees. The numbers may only go down."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dial_client"
FILES = sorted(PACKAGE.rglob("*.py"))
BESIDE = sorted(path for folder in ("tests", "evals", "benchmarks") for path in (ROOT / folder).rglob("*.py"))

MAX_FILE = 400
MAX_FUNCTION = 50
MAX_RESOLUTION = 60
VAGUE_NAMES = {"utils", "helpers", "base", "types", "common", "misc"}
HEAVY = (
    "openai",
    "anthropic",
    "mcp",
    "mcp_types",
    "xllamacpp",
    "huggingface_hub",
    "sqlalchemy",
    "dbos",
    "psycopg",
    "jsonschema_rs",
    "rich",
)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to the end, the docstring apart."""
    doc = function.body[0]
    is_doc = isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str)
    said = (doc.end_lineno or 0) - doc.lineno + 1 if is_doc else 0
    return (function.end_lineno or 0) - function.lineno + 1 - said


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_keeps_to_its_budget(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= (MAX_RESOLUTION if path.name == "resolution.py" else MAX_FILE)
    assert path.stem not in VAGUE_NAMES


def test_files_beside_the_package_keep_to_the_same_budget() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in BESIDE}
    assert {name: count for name, count in lines.items() if count > MAX_FILE} == {}
    assert [str(path.relative_to(ROOT)) for path in BESIDE if path.stem in VAGUE_NAMES] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_function_keeps_to_its_budget(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # The command line's signature is its list of options: one line an option.
    too_long = {f.name: length(f) for f in functions(tree) if length(f) > MAX_FUNCTION}
    assert too_long == {}


# These are imported by nobody at the top: a link loads them when its server is being connected.
LOADED_LATE = {
    PACKAGE / "servers" / "transports" / f"{name}.py"
    for name in ("faults", "floods", "http", "lines", "repair", "stdio", "windows")
} | {PACKAGE / "servers" / "oauth" / f"{name}.py" for name in ("badge", "choice", "machines", "providers")}


@pytest.mark.parametrize("path", [f for f in FILES if f not in LOADED_LATE], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_the_top = [
        name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    assert [name for name in at_the_top if name.split(".")[0] in HEAVY] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_type_checking_imports_are_for_other_peoples_packages_only(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    ours = [
        n
        for block in blocks
        for n in ast.walk(block)
        if isinstance(n, ast.ImportFrom) and "dial_client" in (n.module or "")
    ]
    assert ours == []


def test_importing_the_package_loads_no_sdk() -> None:
    program = f"import sys, dial_client; print([m for m in sys.modules if m.split('.')[0] in {HEAVY}])"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_using_the_client_class_loads_no_sdk_and_no_server() -> None:
    program = (
        "import sys; from dial_client import DialClient; "
        "print([m for m in sys.modules if m in ('openai', 'anthropic', 'mcp', 'mcp.server', 'sqlalchemy')])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_help_loads_neither_sdk_nor_client() -> None:
    program = (
        "import sys; from dial_client.cli.commands import run; code = run(['--help']); "
        "heavy = ('openai', 'anthropic', 'mcp', 'anyio', 'pydantic', 'asyncio', 'starlette', 'uvicorn'); "
        "print([m for m in sys.modules if m in heavy], code)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[] 0"
