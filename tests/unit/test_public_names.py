"""The public names of ``dial_client``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dial_client


def test_the_stub_and_the_package_have_the_same_names() -> None:
    stub = ast.parse(Path(dial_client.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    described = {
        (alias.name, node.module.removeprefix("dial_client."))
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert described == {(name, dial_client._MODULE_OF[name]) for name in dial_client.__all__}  # type: ignore[attr-defined]  # private


def test_every_public_name_exists() -> None:
    assert [name for name in dial_client.__all__ if getattr(dial_client, name, None) is None] == []


def test_the_members_of_public_unions_are_public() -> None:
    unions = [dial_client.Delta, dial_client.Event, dial_client.Part, dial_client.TurnInput]
    members = {member for union in unions for member in union.__args__ if isinstance(member, type)}
    ours = {member for member in members if member.__module__.startswith("dial_client.")}
    assert [member.__name__ for member in ours if getattr(dial_client, member.__name__, None) is not member] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dial_client.Nothing  # type: ignore[attr-defined]  # noqa: B018 - the access is the test


def test_the_version_is_the_installed_version() -> None:
    from importlib.metadata import version

    assert dial_client.__version__ == version("dial-client")
