"""``dial-chat --help`` and the manual page, which are both generated from the options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from site_pages.manual_page import build_manual_page
from tests.inner import (
    EXAMPLES,
    HostName,
    build_all_commands,
    build_command,
    format_chat_help,
    group_options,
    list_command_names,
)
from tests.inner import program_commands as registered

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return build_all_commands()


@pytest.fixture(scope="module")
def chat(commands: dict[str, Any]) -> Any:
    return commands[""]


def test_help_is_short_and_has_every_option_every_command_and_three_examples(
    chat: Any, commands: dict[str, Any]
) -> None:
    lines = format_chat_help(chat, sorted(list_command_names()), 78).splitlines()
    assert len(lines) < 90
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    options = [flag for option in chat.params for flag in getattr(option, "opts", []) if flag.startswith("-")]
    assert [flag for flag in options if flag not in text] == []
    shown = {line.split()[0] for line in lines[lines.index("Commands, each with its own --help:") + 1 :] if line}
    assert {name.partition(" ")[0] for name in commands if name} <= shown
    assert lines[-3:] == [f"  {example}" for example in EXAMPLES]


def test_the_help_of_the_import_names_every_host(commands: dict[str, Any]) -> None:
    source = next(parameter for parameter in commands["servers import"].params if parameter.name == "source")
    assert [host for host in HostName if host not in source.help] == []


def test_an_option_takes_one_line_of_help(chat: Any) -> None:
    long = [
        option.flags
        for _, options in group_options(chat)
        for option in options
        if len(option.flags) > 22 or len(option.first_sentence) > 52
    ]
    assert long == []


def test_the_manual_page_is_generated_from_the_current_options(commands: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "dial-chat.1").read_text(encoding="utf-8")
    assert page == build_manual_page(commands), "run `make man`"
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".TP", ".B", ".br", ".PP", ".nf", ".fi"}


@pytest.mark.parametrize(
    ("name", "built"), [("policy", set()), ("servers login", set()), ("servers", {*list_command_names("servers")})]
)
def test_only_the_named_command_is_built(name: str, built: set[str]) -> None:
    command = build_command(name)
    assert command.name == name.rsplit(maxsplit=1)[-1]
    assert {*getattr(command, "commands", ())} == built


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--nope"], "No such option: --nope"),
        (["call"], "Missing argument 'SERVER/TOOL'; dial-chat call -h shows what there is"),
        (["servers", "bla"], "No such command 'bla'; dial-chat servers -h shows what there is"),
    ],
)
def test_a_wrong_command_line_is_an_error_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert registered.run(words) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"dial-chat: error: {line}")
    assert printed.count("\n") == 1
