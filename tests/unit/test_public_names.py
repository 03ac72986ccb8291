"""The public names of ``dial_client`` and of its public modules."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import dial_client
from dial_client import extend, serve, testing


@pytest.mark.parametrize("module", [dial_client, extend, serve, testing])
def test_a_stub_and_its_module_have_the_same_names(module: Any) -> None:
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    exported = next(node for node in stub.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(exported.value) == module.__all__


def test_every_public_name_exists() -> None:
    modules = (dial_client, extend, serve, testing)
    assert [name for module in modules for name in module.__all__ if getattr(module, name, None) is None] == []


def test_a_name_is_public_in_one_module() -> None:
    assert set(dial_client.__all__) & set(extend.__all__) == set()


def test_the_members_of_public_unions_are_public() -> None:
    unions = [extend.Delta, dial_client.Event, extend.Part, dial_client.TurnInput]
    members = {member for union in unions for member in union.__args__ if isinstance(member, type)}
    ours = {member for member in members if member.__module__.startswith("dial_client.")}
    public = {getattr(module, name) for module in (dial_client, extend) for name in module.__all__}
    assert [member.__name__ for member in ours if member not in public] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dial_client.Nothing  # type: ignore[attr-defined]  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("dial_client", "ScriptedProvider", "dial_client.testing"),
        ("dial_client", "Provider", "dial_client.extend"),
        ("dial_client.extend", "DialClient", "dial_client"),
        ("dial_client.testing", "create_app", "dial_client.serve"),
    ],
)
def test_a_name_of_another_public_module_is_an_error_that_says_where_it_is(module: str, name: str, home: str) -> None:
    with pytest.raises(ImportError, match=f"{name} is in another module: from {home} import {name}"):
        exec(f"from {module} import {name}", {})


def test_the_version_is_the_installed_version() -> None:
    from importlib.metadata import version

    assert dial_client.__version__ == version("dial-client")
