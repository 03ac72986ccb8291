"""The embedded model's calls have values of the conversation only; values that are certain are corrected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import ArgumentSources, ToolCallRequest, ToolSpec


def find_missing(text: str, value: Any, **schema: Any) -> list[str]:
    tool = ToolSpec("book", "", {"properties": {"title": schema}, "required": ["title"]})
    return ArgumentSources([text]).find_missing(ToolCallRequest("1", "book", {"title": value}), tool)


@pytest.mark.parametrize(
    ("text", "value", "has_source"),
    [
        ("Book a table for two at noon", "table for 2", True),
        ("Book a table for two at noon", "table for 3", False),
        ("Book the Grand Hotel", "Grand Hotell", True),
        ("Book the Grand Hotel", "Station Inn", False),
        ("Take 17 % off", "0.17", True),
        ("Meet at 3 pm", "15:30", False),
        ("Meet at 3 pm", "15", True),
        ("It costs 1,234", "1234", True),
        ("Read /etc/hosts", "/etc/hosts", True),
        ("Read the file", "/etc/hosts", False),
        ("What is the title?", "title", False),
    ],
)
def test_a_value_has_its_source_in_the_conversation(text: str, value: str, has_source: bool) -> None:
    assert find_missing(text, value) == ([] if has_source else ["title"])


def test_a_value_that_the_schema_names_needs_no_source() -> None:
    assert find_missing("Go on", "daily", enum=["daily"]) == []
    assert find_missing("Go on", "daily", default="daily") == []
    assert find_missing("Go on", "daily", description="The period, usually 'daily'") == []
    assert find_missing("Go on", "daily", description="The period, such as 'daily'") == ["title"]


@pytest.mark.parametrize(
    ("name", "about", "text", "value", "corrected"),
    [
        ("timezone", "", "What time is it in New York?", "New York", "America/New_York"),
        ("zone", "An IANA name", "What time is it in Sao Paulo?", "Sao Paulo", "America/Sao_Paulo"),
        ("city", "", "The weather in New York?", "New York", "New York"),
        ("repo_path", "", "Show the log", "/home/me/project", "."),
        ("repo_path", "", "Show the log of /srv/x", "/srv/x", "/srv/x"),
        ("repo_path", "An absolute path", "Show the log", "/home/me/project", "/home/me/project"),
        ("branch", "Usually 'main'", "Show the log", "develop", "main"),
    ],
)
def test_values_that_are_certain_are_corrected(name: str, about: str, text: str, value: str, corrected: str) -> None:
    tool = ToolSpec("look_up", "", {"properties": {name: {"type": "string", "description": about}}})
    call = ArgumentSources([text]).correct(ToolCallRequest("1", "look_up", {name: value}), tool)
    assert call.arguments == {name: corrected}
