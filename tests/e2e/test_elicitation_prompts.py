"""Elicitation, sampling and logs of servers in dial-chat without a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import dial_chat, python_server, write_config
from tests.support.servers.launch import HERE


def configured(folder: Path, tool: str, *more: Any, **arguments: Any) -> None:
    call = {"tool_calls": [{"name": tool, "arguments": arguments}]}
    shop = python_server(HERE / "questions.py", autoApprove=["*"])
    write_config(folder, {"shop": shop}, {"replies": [call, *more, "Done."]})


def result(folder: Path, *words: str) -> tuple[str, str]:
    """Run dial-chat without a terminal, and return the result of the call and standard error."""
    done = dial_chat(folder, "--no-save", "--output", "json", *words, "Go")
    assert done.returncode == 0, done.stderr
    [call] = json.loads(done.stdout)["tool_calls"]
    return call["content"], done.stderr


@pytest.mark.parametrize(
    ("tool", "outcome"),
    [
        ("returns", "dial-chat: shop asks: Sure?; declined, because there is no terminal to ask at\n"),
        ("pushes", "dial-chat: shop asks: What shall it be?; declined, because there is no terminal to ask at\n"),
        ("page", "dial-chat: shop asks: to open https://auth.example.test/start?id=7; declined"),
    ],
)
def test_without_a_terminal_an_elicitation_is_declined_and_reported_on_standard_error(
    tmp_path: Path, tool: str, outcome: str
) -> None:
    configured(tmp_path, tool)
    content, errors = result(tmp_path)
    assert "decline" in content
    assert outcome in errors


def test_without_a_terminal_sampling_needs_an_option_and_an_allow_rule(tmp_path: Path) -> None:
    configured(tmp_path, "samples_too", "A word.")
    content, errors = result(tmp_path)
    assert "sampling is not enabled" in content
    content, errors = result(tmp_path, "--sampling")
    assert "User rejected sampling request" in content
    assert "--allow shop/sampling/createMessage allows it" in errors
    content, errors = result(tmp_path, "--sampling", "--allow", "shop/sampling/*")
    assert content == "A word."


def test_log_messages_are_shown_on_standard_error_only_with_v(tmp_path: Path) -> None:
    configured(tmp_path, "logs")
    _, quiet = result(tmp_path)
    _, loud = result(tmp_path, "-v")
    assert "shop shop (info)" not in quiet
    assert 'shop shop (info): {"at": 0' in loud
    assert "\x1b" not in quiet + loud
