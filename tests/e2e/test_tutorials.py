"""The commands of README.md and of the tutorials, run literally in an empty folder of a user who has only Python.

With ``DIAL_TEST_ANSWERS`` the embedded model answers; otherwise a scripted model.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.inner import read
from tests.support.browser import WHY_NOT, Browser
from tests.support.newcomer import ROOT, Newcomer, installed_newcomer, list_commands
from tests.support.real_weights import HAS_MODEL
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message

README = "README.md"
TERMINAL = "docs/start-terminal.md"
LIBRARY = "docs/start-library.md"
PAGE = "docs/start-page.md"
TOKYO = "What time is it in Tokyo?"
TIME = re.compile(r"\d\d?:\d\d|noon")
CLOCK = [
    {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]},
    "It is noon in Tokyo.",
]
STATUS = [{"tool_calls": [{"name": "git_status", "arguments": {"repo_path": "."}}]}, "On branch main."]
PATIENCE = 300.0
"""Timeout in seconds for an answer of the embedded model; a scripted model answers at once."""
pytestmark = [
    pytest.mark.once,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell"),
]
unless_scripted = pytest.mark.skipif(
    not HAS_MODEL, reason="DIAL_TEST_ANSWERS is not set: tests/e2e/test_documents.py runs it with a script"
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """A user's folder after the first four commands, which are the same in README.md and all three tutorials."""
    commands = list_commands(TERMINAL)[:4]
    assert [*map(without_comment, commands)] == [*map(without_comment, list_commands(README)[:4])]
    with installed_newcomer(tmp_path_factory.mktemp("reader"), commands) as person:
        written = read((person.folder / "servers.json").read_text(encoding="utf-8"), "servers.json").value
        assert written == json.loads("\n".join(list_commands(TERMINAL, "json")))
        if not HAS_MODEL:
            person.run("dial-chat config set defaultModel scripted:replies.json")
        yield person


@pytest.fixture
def quick(reader: Newcomer) -> Iterator[Newcomer]:
    """The same folder with a program that starts quickly; the other tests start the program of the wheel."""
    with reader.forked():
        yield reader


def prepare(person: Newcomer, replies: list[Any]) -> None:
    """Write the replies of the scripted model, if the embedded model is not used."""
    (person.folder / "replies.json").write_text(json.dumps(replies), encoding="utf-8")


def without_comment(command: str) -> str:
    return re.sub(r"\s+#.*", "", command)


def find_command(page: str, start: str) -> str:
    """Return the first command of a page that begins with `start`."""
    return next(command for command in list_commands(page) if command.startswith(start))


def read_programs() -> list[str]:
    """Return the programs of the tutorial of the library."""
    return re.findall(r"```python\n(.*?)```", (ROOT / LIBRARY).read_text(encoding="utf-8"), re.DOTALL)


def test_the_commands_of_the_readme_lead_to_an_answer() -> None:
    assert [*map(without_comment, list_commands(README))] == [
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install 'dial-client[local,demo]'",
        "dial-chat init --yes --model local --server time",
        f'dial-chat "{TOKYO}"',
        "make demo",
        "make test",
        "dial-chat serve",
    ]
    assert len((ROOT / README).read_text(encoding="utf-8").splitlines()) <= 150


def test_the_program_runs_from_its_wheel_under_both_names(reader: Newcomer) -> None:
    place = reader.run("python -c 'import dial_client; print(dial_client.__file__)'").stdout
    assert place.startswith(str(reader.folder / ".venv"))
    version = reader.run("dial-client --version").stdout
    assert version == reader.run("dial-chat --version").stdout != ""


def test_the_first_question_is_answered_from_a_tool(reader: Newcomer) -> None:
    prepare(reader, CLOCK)
    ran = reader.run(find_command(README, 'dial-chat "'))
    assert TIME.search(ran.stdout), ran.stdout
    assert not HAS_MODEL or "local is a demonstration that needs no key" in ran.stderr


@unless_scripted
def test_the_program_of_the_readme_runs(reader: Newcomer) -> None:
    (reader.folder / "first.py").write_text("\n".join(list_commands(README, "python")) + "\n", encoding="utf-8")
    assert "['get_current_time']" in reader.run("python first.py").stdout


def test_the_servers_and_their_tools_are_listed_and_called(quick: Newcomer) -> None:
    assert quick.run(find_command(TERMINAL, "dial-chat servers")).stdout.startswith("time: ready")
    tools = quick.run(find_command(TERMINAL, "dial-chat tools")).stdout.splitlines()
    assert [line.split()[0] for line in tools] == ["convert_time", "get_current_time"]
    assert "Asia/Tokyo" in quick.run(find_command(TERMINAL, "dial-chat call")).stdout


def test_answers_are_piped_and_printed_as_json(quick: Newcomer) -> None:
    prepare(quick, CLOCK)
    quick.run(next(command for command in list_commands(TERMINAL) if "> answer.txt" in command))
    assert TIME.search((quick.folder / "answer.txt").read_text(encoding="utf-8"))
    turn = json.loads(quick.run(find_command(TERMINAL, "dial-chat --output json")).stdout)
    calls = [(call["tool"], call["arguments"].get("timezone"), call["is_error"]) for call in turn["tool_calls"]]
    assert (turn["stop_reason"], calls) == ("answered", [("get_current_time", "Asia/Tokyo", False)])


def test_a_conversation_can_be_continued(quick: Newcomer) -> None:
    prepare(quick, CLOCK)
    with quick.type_at_terminal("dial-chat") as screen:
        screen.until("server ready")
        screen.type(f"{TOKYO}\r")
        screen.until_true(lambda: bool(TIME.search(screen.text.partition(TOKYO)[2])), "an answer with a time")
        screen.until_gone("Esc stops")
        for command, shown in (("/tools", "get_current_time"), ("/undo", "Undone"), ("/help", "/quit")):
            screen.type(f"{command}\r")
            screen.until(shown)
        screen.type("/quit\r")
        assert screen.leave() == 0
    with quick.type_at_terminal(find_command(TERMINAL, "dial-chat --continue")) as screen:
        screen.until("server ready")
        screen.type("\x04")
        assert screen.leave() == 0
    assert quick.run(find_command(TERMINAL, "dial-chat conversations")).stdout


def test_a_call_without_a_rule_is_approved_in_the_terminal_and_denied_without_a_terminal(quick: Newcomer) -> None:
    prepare(quick, STATUS)
    quick.run(find_command(TERMINAL, "git init"))
    quick.run(find_command(TERMINAL, "dial-chat servers add"))
    question = find_command(TERMINAL, 'dial-chat "What is the git')
    try:
        denied = subprocess.run(
            ["bash", "-c", f". .venv/bin/activate; {question}"],
            check=False,
            cwd=quick.folder,
            env=quick.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (denied.returncode, "--allow git/git_status" in denied.stderr) == (5, True), denied
        with quick.type_at_terminal(question) as screen:
            screen.until("╭ git_status · git")
            screen.type("y")
            assert screen.leave() == 0
            assert "branch" in screen.text
    finally:
        quick.run("dial-chat servers remove git")


@unless_scripted
@pytest.mark.parametrize(
    ("number", "expected"), [(1, "[time: get_current_time]"), (2, "6"), (3, "Tokyo Japan"), (4, "Ada")]
)
def test_the_programs_run(reader: Newcomer, number: int, expected: str) -> None:
    (reader.folder / "first.py").write_text(read_programs()[number], encoding="utf-8")
    assert expected in reader.run("python first.py").stdout


def test_a_program_runs_with_the_installed_library(reader: Newcomer) -> None:
    prepare(reader, CLOCK)
    (reader.folder / "first.py").write_text(read_programs()[0], encoding="utf-8")
    assert "call: time get_current_time {'timezone': 'Asia/Tokyo'}" in reader.run("python first.py").stdout


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_the_page_answers_and_waits_for_approval(reader: Newcomer, chromium: Browser) -> None:
    prepare(reader, CLOCK)
    with reader.serve() as address:
        tab = open_page(chromium, address)
        send_message(tab, TOKYO)
        tab.until(DONE, PATIENCE)
        assert TIME.search(read_text(tab, ".turn:last-child .prose"))
        assert_harmless(tab, address)
    with reader.forked():
        reader.run(find_command(PAGE, "dial-chat config unset"))
        try:
            with reader.serve() as address:
                tab = open_page(chromium, address)
                send_message(tab, TOKYO)
                tab.until("document.querySelector('.request')", PATIENCE)
                assert "get_current_time" in read_text(tab, ".request")
        finally:
            reader.run("dial-chat config set mcpServers.time.autoApprove '[\"*\"]'")


def test_another_program_can_use_the_service(reader: Newcomer) -> None:
    prepare(reader, CLOCK)
    request = find_command(PAGE, "curl")
    if not HAS_MODEL:
        request = request.replace('"local"', '"scripted:replies.json"')
    token = find_command(PAGE, "export DIAL_SERVE_TOKEN=").partition("=")[2]
    reader.variables["DIAL_SERVE_TOKEN"] = token
    with reader.serve("--allow", "time/*") as address:
        answer = json.loads(reader.run(request.replace("http://127.0.0.1:8000/", address.partition("#")[0])).stdout)
    assert "choices" in answer, answer
    assert TIME.search(answer["choices"][0]["message"]["content"]), answer
