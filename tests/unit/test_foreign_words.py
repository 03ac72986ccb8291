"""Options and commands of other programs for chats: they work, or a line says what to type."""

from __future__ import annotations

import pytest

from tests.inner import find_hint, is_misspelled_command, split_command, translate_command, translate_options
from tests.inner import program_commands as registered


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--json hi", "--output json hi"),
        ("--output-format json hi", "--output json hi"),
        ("-p --output-format=stream-json hi", "-p --output jsonl hi"),
        ("--max-turns 3 --system-prompt Short hi", "--max-depth 3 --system Short hi"),
        ("-r", "--resume="),
        ("-r 610ed89b hi", "--resume 610ed89b hi"),
        ("--system --json hi", "--system --json hi"),
        ("hi -- --json", "hi -- --json"),
    ],
)
def test_an_option_that_means_the_same_works(typed: str, meant: str) -> None:
    assert translate_options(typed.split()) == meant.split()


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("--dangerously-skip-permissions hi", "type -y"),
        ("--allowedTools Bash hi", "type --allow 'SERVER/TOOL'"),
        ("--permission-mode=plan hi", "type --mode"),
        ("-c", "type --continue"),
        ("-c -v", "type --continue"),
        ("-c my.json hi", ""),
        ("--system -c hi", ""),
        ("-- --yolo", ""),
        ("what time is it", ""),
    ],
)
def test_a_line_says_what_to_type_in_place_of_an_option(typed: str, hint: str) -> None:
    found = find_hint(typed.split())
    assert hint in found
    assert bool(hint) is bool(found)


def test_a_question_after_the_option_c_is_no_file() -> None:
    assert "type --continue" in find_hint(["-c", "and in Paris?"])


@pytest.mark.parametrize(
    ("typed", "command", "rest"),
    [
        ("server list", "servers list", ""),
        ("mcp ls --json", "servers list", "--json"),
        ("mcp get time", "servers test", "time"),
        ("mcp add time --env A=B -- mcp-server-time", "servers add", "time --env A=B -- mcp-server-time"),
        ("session list", "conversations", "list"),
        ("server add time -- mcp-server-time", "servers add", "time -- mcp-server-time"),
        ("server list of the office", "", "server list of the office"),
        ("model test results", "", "model test results"),
        ("session delete it", "", "session delete it"),
        ("help", "help", ""),
        ("help many tools", "help", "many tools"),
        ("help servers login", "help", "servers login"),
        ("help me", "help", "me"),
        ("help me with taxes", "", "help me with taxes"),
        ("what time is it", "", "what time is it"),
        ("-p tools list", "", "-p tools list"),
    ],
)
def test_a_command_that_means_the_same_works(typed: str, command: str, rest: str) -> None:
    assert split_command(translate_command(typed.split())) == (command, rest.split())


def test_a_command_that_asks_one_question_works() -> None:
    assert translate_command(["exec", "--json", "fix the test"]) == ["-p", "--json", "fix the test"]
    assert translate_command(["exec", "it"]) == ["exec", "it"]


@pytest.mark.parametrize(
    ("typed", "is_misspelled"),
    [
        ("modles list", True),
        ("conversatons show 610ed89b", True),
        ("model test results", True),
        ("session delete it", True),
        ("modles list of cars", False),
        ("check list", False),
        ("what time is it", False),
        ("-p modles list", False),
    ],
)
def test_a_misspelled_command_with_an_action_is_no_question(typed: str, is_misspelled: bool) -> None:
    assert is_misspelled_command(typed.split()) is is_misspelled


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("model test results", "models test results"),
        ("session remove 610ed89b", "conversations delete 610ed89b"),
        ("server rm time", "servers remove time"),
        ("modles ls", "models list"),
    ],
)
def test_words_that_may_be_a_question_are_neither_sent_nor_run(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert registered.run(typed.split()) == 2
    end = f"did you mean: dial-chat {meant}; to ask the model: dial-chat -- {typed}"
    assert capsys.readouterr().err.rstrip().endswith(end)


@pytest.mark.parametrize("typed", ["trust me on this", "tools of the trade", "models are great"])
def test_a_question_that_begins_like_a_command_gets_a_line_that_says_what_to_type(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert registered.run(typed.split()) == 2
    assert "to ask the model: dial-chat -p PROMPT" in capsys.readouterr().err
