"""Rules for names, checked on the syntax trees of the package; each test lists its offenders."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.unit.test_layers import OTHER_FILES, ROOT, functions, name, nodes, trees

pytestmark = pytest.mark.once

POSITIONS = {"one", "other", "others", "said", "told", "wanted"}
"""Names of a position or an event, which say nothing about the content."""
PRONOUN = r"_(ones|one_(that|which|who|is|has|can)|(the|no|any)_others|(another|earlier|later|next|other)_one)_"
"""Pronouns in the names of tests. Before a noun, `one` is a number and `other` an adjective."""
METAPHORS = {
    "badge",
    "courier",
    "desk",
    "door",
    "drawer",
    "ear",
    "elsewhere",
    "errand",
    "keeper",
    "nursery",
    "shelf",
    "slips",
    "vault",
    "witness",
}
"""Metaphors. MCP, OAuth, HTTP and databases have standard terms."""
VERB_NOUNS = {
    "grammar_tool_calling",
    "policy_listing",
    "recording",
    "sampling",
    "sdk_mapping",
    "secret_masking",
    "tool_listing",
    "tool_matching",
}
"""Standard terms that end like a participle."""
PARTICIPLES = {"scripted"}
"""`scripted:` is the prefix of a model's name."""
NO_PARTICIPLES = {"embed", "feed", "need", "seed", "succeed"}
"""Verbs that end like a participle."""
NAMED_BY_RESULT = {"blocking", "failed", "reasoning", "warning", "_expected_issuer"}
"""`DialClient.blocking`, `ToolCallResult.failed` and `ReplyReader.reasoning` are public, `Logger.warning` is the
standard library's name, and `_expected_issuer` the MCP SDK's."""


def bound_names(found: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class, parameter, variable and attribute that a node binds."""
    for node in found:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def words_of(identifier: str) -> set[str]:
    """Return the words of an identifier in lower case."""
    return set(re.sub(r"([A-Z])", r"_\1", identifier).lower().split("_"))


def test_module_names_are_unique() -> None:
    stems = Counter(path.stem for path in trees() if not path.stem.startswith("__"))
    assert [stem for stem, count in stems.items() if count > 1] == []


def type_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the classes and type aliases of a module, without type variables and options of commands."""
    for node in tree.body:
        match node:
            case ast.ClassDef():
                yield node.name
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if re.match(r"[A-Z]\w*[a-z]", bound):
                if not re.match(r"TypeVar\(|Annotated\[", ast.unparse(value)):
                    yield bound


def test_public_types_have_unique_names() -> None:
    modules: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for bound in type_names(tree):
            if not bound.startswith("_"):
                modules.setdefault(bound, []).append(name(path))
    assert {bound: files for bound, files in modules.items() if len(files) > 1} == {}


def test_a_module_is_named_by_a_noun() -> None:
    offenders = [
        name(path)
        for path in trees()
        if (re.search(r"(ing|ed)$", path.stem) and path.stem not in VERB_NOUNS | PARTICIPLES)
        or {path.stem, path.parent.name} & (POSITIONS | METAPHORS)
    ]
    assert offenders == []


def test_no_docstring_begins_with_give() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in (*trees(), *OTHER_FILES)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r'\s*"""Gives? ', line)
    ]
    assert offenders == []


def is_read_as_value(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True for properties and context managers, which are named by what they are."""
    return any(re.search(r"property|contextmanager|setter", ast.unparse(line)) for line in function.decorator_list)


def test_functions_are_named_by_verbs() -> None:
    offenders = [
        f"{name(path)}:{function.lineno}: {function.name}"
        for path, function in functions()
        if not is_read_as_value(function)
        and not function.name.startswith(("is_", "_is_", "__"))
        and (
            (re.search(r"(ed|ing)$", first := function.name.strip("_").split("_")[0]) and first not in NO_PARTICIPLES)
            or (function.name.endswith("_of") and not function.name.endswith(("any_of", "all_of", "one_of")))
        )
        and function.name not in NAMED_BY_RESULT
    ]
    assert offenders == []


def test_names_describe_content_and_not_a_position() -> None:
    offenders = [
        f"{name(path)}:{line}: {bound}"
        for path, found in nodes().items()
        for line, bound in bound_names(found)
        if bound.strip("_") in POSITIONS
    ]
    assert offenders == []


def test_names_of_tests_have_no_pronouns() -> None:
    offenders = [
        f"{name(path)}:{line}: {bound}"
        for path in OTHER_FILES
        if path.relative_to(ROOT).parts[0] == "tests"
        for line, bound in bound_names(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        if bound.strip("_") in POSITIONS or (bound.startswith("test_") and re.search(PRONOUN, f"{bound}_"))
    ]
    assert offenders == []


def test_names_have_no_metaphors() -> None:
    offenders = [
        f"{name(path)}:{line}: {bound}"
        for path, found in nodes().items()
        for line, bound in bound_names(found)
        if words_of(bound) & METAPHORS
    ]
    assert offenders == []
