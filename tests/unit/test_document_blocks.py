"""Code blocks of the documentation are valid: Python compiles, names exist, commands parse, JSON fits the schema.

`tests/e2e/test_documents.py` runs the programs.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import dial_client
from dial_client import extend, testing
from tests.inner import build_all_commands, list_command_names, normalize_resume, read, read_limits, read_schema
from tests.inner import program_commands as registered  # noqa: F401 - the import registers the commands

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OBJECTS = {
    "dial": dial_client.DialClient,
    "manager": dial_client.ConversationManager,
    "turns": dial_client.DurableTurns,
    "turn": dial_client.Turn | dial_client.TurnHandle,
}
"""The variables of the examples, and the types of their objects."""
LIBRARIES = {"dial_client": dial_client, "dial_client.extend": extend, "dial_client.testing": testing}


def list_blocks(*languages: str) -> list[Any]:
    """Return the code blocks of all pages in the given languages, as test parameters; their ids are the places."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    return [
        pytest.param(block[2], id=f"{name}:{text.count(chr(10), 0, block.start()) + 1}")
        for name, text in texts.items()
        for block in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        if block[1] in languages
    ]


def parse_python(block: str) -> ast.Module:
    """Return the syntax tree of a block, which may use `await` outside of functions."""
    tree = compile(block, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    return tree


def find_unknown_names(tree: ast.Module) -> list[str]:
    """Return the names of this package that a block uses, and that do not exist."""
    unknown = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in LIBRARIES:
            names = LIBRARIES[node.module].__all__
            unknown += [alias.name for alias in node.names if alias.name not in names]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OBJECTS:
            unknown += [] if has_attribute(OBJECTS[node.value.id], node.attr) else [f"{node.value.id}.{node.attr}"]
    return unknown


def has_attribute(kind: Any, name: str) -> bool:
    """Return whether objects of a type, or of a type of a union, have an attribute."""
    kinds = getattr(kind, "__args__", (kind,))
    if any(hasattr(type_, name) for type_ in kinds):
        return True
    parents = (parent for type_ in kinds for parent in type_.__mro__ if parent.__module__.startswith("dial_client."))
    return any(re.search(rf"^ .*self\.{name}\b.* = ", inspect.getsource(parent), re.MULTILINE) for parent in parents)


@pytest.mark.parametrize("block", list_blocks("python"))
def test_python_blocks_compile_and_name_existing_objects(block: str) -> None:
    assert find_unknown_names(parse_python(block)) == []


@pytest.mark.parametrize("block", list_blocks("py"))
def test_programs_of_other_libraries_compile(block: str) -> None:
    assert not any(
        isinstance(node, ast.ImportFrom) and node.module in LIBRARIES for node in ast.walk(parse_python(block))
    )


def test_names_that_do_not_exist_are_found() -> None:
    tree = parse_python("from dial_client import DialClient, Nothing\nawait dial.nothing()\nawait dial.run('x')")
    assert find_unknown_names(tree) == ["Nothing", "dial.nothing"]


def find_errors(line: str) -> str:
    """Return what is wrong with the options of a command line of `dial-chat`; empty if nothing is."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((at for at, word in enumerate(words) if word in ("&", "|", ">", "2>", ";", "&&")), None)]
    commands = build_all_commands()
    name = next((" ".join(words[:size]) for size in (2, 1) if " ".join(words[:size]) in commands), "")
    if not name and words and words[0] in list_command_names():
        name = words[0]  # a group alone, as in `dial-chat servers`, runs its command `list`
    rest = words[len(name.split()) :]
    command = commands.get(name) or commands[f"{name} list"]
    context = command.context_class(command, info_name="dial-chat")
    try:
        _, left, _ = command.make_parser(context).parse_args(args=normalize_resume(rest))
    except Exception as error:  # noqa: BLE001 - typer has copies of click's exceptions
        return str(error)
    return f"unexpected {left}" if left else ""


def list_command_lines() -> list[Any]:
    """Return each command line of `dial-chat` in blocks for shells, with its page."""
    return [
        pytest.param(found[0], id=f"{block.id} {found[0]}")
        for block in list_blocks("sh")
        for line in str(block.values[0]).replace("\\\n", " ").splitlines()
        if (found := re.search(r"(?<![\w'/\[-])dial-chat( .*|$)", line.partition(" # ")[0]))
    ]


@pytest.mark.parametrize("line", list_command_lines())
def test_command_lines_parse(line: str) -> None:
    assert find_errors(line) == ""


def test_wrong_options_are_found() -> None:
    assert "--nothing" in find_errors("dial-chat --nothing")
    assert "--prot" in find_errors("dial-chat serve --prot 8000")
    assert find_errors("dial-chat servers add a -- program --option") == ""


SCHEMA: dict[str, Any] = json.loads(read_schema())


def find_definition(content: Any) -> str | None:
    """Return the definition of the servers.json schema for a block: empty for a whole file, None for other JSON."""
    if not isinstance(content, dict):
        return None
    if content.keys() <= SCHEMA["properties"].keys():
        return ""
    return "server" if {"url", "command"} & content.keys() else None


@pytest.mark.parametrize("block", list_blocks("json", "jsonc"))
def test_json_blocks_fit_the_schema(block: str, tmp_path: Path) -> None:
    content = read(block).value
    if isinstance(content, dict) and "*" in content:
        file = tmp_path / "limits.json"
        file.write_text(block, encoding="utf-8")
        assert read_limits(file).by_name.keys() == content.keys()
        return
    definition = find_definition(content)
    if definition is not None:
        part = {"$ref": f"#/$defs/{definition}", "$defs": SCHEMA["$defs"]} if definition else SCHEMA
        jsonschema_rs.validate(part, content)
    else:
        assert isinstance(content, list) or {"replies"} <= content.keys()
