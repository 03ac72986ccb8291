"""Docstrings of public names describe parameters, results and errors; each test lists its offenders."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dial_client
from dial_client import extend, testing

pytestmark = pytest.mark.once

REFERENCE = re.compile(r"\b(?:[Aa]s|of|than|See|what) `\w")
"""Matches a docstring that refers to another docstring, as in ``Raises as `run` ``."""
RESULT = re.compile(r"\b(?:return|yield|make|read|give)", re.IGNORECASE)
MANY = 2
"""Number of parameters up to which a docstring need not name them."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Yield the name of each public function and method, the function, and whether it is a property."""
    for module in (dial_client, testing):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield name, value, False
            if inspect.isclass(value):
                yield from methods_of(name, value)


def methods_of(name: str, owner: type) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    for attribute in dir(owner):
        if attribute.startswith("_"):
            continue
        raw = inspect.getattr_static(owner, attribute)
        is_property = isinstance(raw, property)
        function = raw.fget if is_property else getattr(raw, "__func__", raw)
        if inspect.isfunction(function) and function.__module__.startswith("dial_client"):
            yield f"{name}.{attribute}", function, is_property


def doc_of(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""


METHODS = [(name, function) for name, function, is_property in public_functions() if not is_property]


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, function, _ in public_functions() if not doc_of(function)] == []
    types = [(name, getattr(module, name)) for module in (dial_client, extend) for name in module.__all__]
    assert [name for name, value in types if inspect.isclass(value) and not value.__doc__] == []


def test_a_docstring_names_its_parameters_if_there_are_more_than_two() -> None:
    offenders = [
        f"{name}: {parameter}"
        for name, function in METHODS
        for parameters in [[each for each in inspect.signature(function).parameters if each not in ("self", "cls")]]
        for parameter in parameters
        if len(parameters) > MANY
        and not re.search(rf"\b{parameter}\b", doc_of(function))
        and not REFERENCE.search(doc_of(function))
    ]
    assert offenders == []


def test_a_docstring_describes_the_result() -> None:
    offenders = [
        name
        for name, function in METHODS
        if inspect.signature(function).return_annotation not in (None, "None", "NoReturn")
        and not RESULT.search(doc_of(function))
        and not REFERENCE.search(doc_of(function))
    ]
    assert offenders == []


def test_a_docstring_names_the_errors_that_the_function_raises() -> None:
    offenders = [
        f"{name}: {error}"
        for name, function in METHODS
        for error in raised_by(function)
        if error not in doc_of(function) and not REFERENCE.search(doc_of(function))
    ]
    assert offenders == []


def raised_by(function: Callable[..., Any]) -> set[str]:
    """Return the names of the error classes in the function's own ``raise`` statements."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    names = {ast.unparse(error.func if isinstance(error, ast.Call) else error) for error in raised}
    return {name for name in names if name[0].isupper()}
