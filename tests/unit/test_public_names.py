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


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dial_client.Nothing  # type: ignore[attr-defined]  # noqa: B018 - the access is the test


def test_the_version_is_the_installed_version() -> None:
    from importlib.metadata import version

    assert dial_client.__version__ == version("dial-client")
