"""In a folder with an untrusted servers.json, no command of dial-chat uses anything from that file."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperArgument

import dial_client.cli.commands.program_commands  # noqa: F401 - registers them
from tests.inner import build_all_commands, split_command
from tests.support.hostile_repository import KEY, HostileFolder, hostile_folder
from tests.support.program import LONG
from tests.support.pseudo_terminal import plain, run_in_terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")

PROGRAM = build_all_commands()
CHAT = PROGRAM.pop("")
"""All commands of the program except the chat; commands of a group have both names."""
VALUES = {"name": "net", "action": "list", "prompt": "Hello"}
INSPECTORS = {
    "doctor": "DC114",
    "bug-report": "--yes",
    "config": "not trusted, not in use",
    "models": "not trusted",
    "gateway": "dial-chat trust servers.json",
    "acp": "acp answers an editor",
    "grants": "no grants",
}
"""Commands that run without the file, with a part of their message; they may list the models of the user's endpoint."""
ENDS_WITHOUT_CONFIGURATION = {"conversations": 0, "trust": 2, "credentials": 0, "db": 0}
RARE_READERS = {"credentials", "db"}
"""Commands that read a configuration only to revoke logins of a person, of whom there is none here."""


def words_of(name: str) -> list[str]:
    """Return a command with its required arguments."""
    arguments = [p for p in PROGRAM[name].params if isinstance(p, TyperArgument) and p.required]
    return [*name.split(), *(VALUES.get(str(argument.name), "x") for argument in arguments)]


SHORT = ["--port", "0"]
RUNS: list[list[str]] = [
    *(words_of(name) + (SHORT if name == "serve" else []) for name in PROGRAM),
    ["servers"],
    ["Hello"],
    ["--no-save", "--output", "json", "Hello"],
]


def reads_a_configuration(words: list[str]) -> bool:
    named, _ = split_command(words)
    command = PROGRAM.get(named, CHAT)
    return named not in RARE_READERS and any(parameter.name == "config" for parameter in command.params)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[HostileFolder]:
    with hostile_folder(tmp_path) as made:
        yield made


def test_the_list_of_commands_is_read_from_the_program() -> None:
    assert {
        "call",
        "conversations",
        "prompts",
        "resources",
        "serve",
        "servers list",
        "tools",
        "trust",
    } <= PROGRAM.keys()


@pytest.mark.parametrize("name", [*PROGRAM, ""])
def test_every_command_that_reads_a_configuration_has_the_option_to_trust_it(name: str) -> None:
    command = PROGRAM[name] if name else CHAT
    options = {parameter.name for parameter in command.params}
    assert ("trust" in options) == ("config" in options)


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_without_a_terminal_the_untrusted_file_is_not_used(folder: HostileFolder, words: list[str]) -> None:
    done = folder.run(*words)
    folder.assert_untouched()
    if words[0] in INSPECTORS:
        assert INSPECTORS[words[0]] in done.stdout + done.stderr
        assert all(request.startswith(b"GET /v1/models") for request in folder.endpoint.heard)
        return
    assert folder.endpoint.heard == []
    if reads_a_configuration(words):
        assert done.returncode == 2
        assert "dial-chat trust servers.json" in done.stderr
        assert "--trust" in done.stderr
        assert str(folder.path / "servers.json") in done.stderr
    else:
        assert done.returncode == ENDS_WITHOUT_CONFIGURATION.get(words[0], done.returncode)


@pytest.mark.parametrize("words", [*RUNS, []], ids=lambda words: " ".join(words) or "talk")
def test_after_the_answer_no_the_untrusted_file_is_not_used(folder: HostileFolder, words: list[str]) -> None:
    shown = answered(folder, words, "n\r")
    folder.assert_untouched()
    if reads_a_configuration(words) and not INSPECTORS.keys() & {*words}:
        assert "is not known" not in shown
        assert "continuing without the servers.json of this folder" in shown
    if words == ["Hello"]:  # the request goes to the user's own model with the user's own key
        assert KEY.encode() in folder.endpoint.heard[0]


def test_the_hostile_file_has_its_effect_with_the_option_trust(folder: HostileFolder) -> None:
    done = folder.run("--trust", "--no-save", "Hello")
    assert folder.marker.exists()
    assert any(KEY.encode() in request for request in folder.stranger.heard)
    assert done.returncode == 3
    folder.marker.unlink()
    folder.stranger.heard.clear()
    assert folder.run("--no-save", "Hello").returncode == 2  # the option applies to one run
    folder.assert_untouched()


def test_standard_input_does_not_answer_the_trust_prompt(folder: HostileFolder) -> None:
    assert folder.run("Hello", stdin="t\nt\n").returncode == 2
    folder.assert_untouched()


def answered(folder: HostileFolder, words: list[str], keys: str) -> str:
    """Run dial-chat in a terminal, answer its trust prompt, end it where it waits, and return its output."""
    answers: dict[str, str | None] = {
        "[v]iew the whole file:": keys,
        "· /help": "\x04",
        "the name of any model": "\x04",  # init, which writes the user's own file
        "Write this to dial-chat-report": "n\r",
        "listening on": None,
        "acp answers an editor": "\x04",
        "servers.json is left out": None,  # the gateway, which serves until it is ended
        "[y/N]": "n\r",
    }
    end = time.monotonic() + LONG
    with run_in_terminal(folder.path, words, folder.environment()) as screen:
        while screen.process.poll() is None and time.monotonic() < end:
            screen.read(0.1)
            for question in [text for text in answers if text in plain(screen.raw)]:
                answer = answers.pop(question)
                screen.type(answer) if answer else screen.process.send_signal(signal.SIGTERM)
        assert screen.process.poll() is not None, screen.raw
        screen.leave()
    return screen.raw
