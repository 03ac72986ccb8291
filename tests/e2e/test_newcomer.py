"""The commands of README.md, run in an empty folder of a user who has only Python."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import pytest

from dial_client.settings import configuration
from tests.support.newcomer import HAS_MODEL, ROOT, Newcomer, installed_newcomer, list_commands

README = (ROOT / "README.md").read_text(encoding="utf-8")
REPLIES = [
    {"tool_calls": [{"name": "get_current_time", "arguments": {"timezone": "Asia/Tokyo"}}]},
    "It is noon in Tokyo.",
]
pytestmark = [
    pytest.mark.once,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a POSIX shell"),
]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """A user's folder after the first four commands of README.md."""
    with installed_newcomer(tmp_path_factory.mktemp("newcomer"), list_commands("README.md")[:4]) as person:
        yield person


def test_the_commands_of_the_readme_lead_to_an_answer() -> None:
    commands = [re.sub(r"\s+#.*", "", command) for command in list_commands("README.md")]
    assert commands == [
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install 'dial-client[local,demo]'",
        "dial-chat init --yes --model local --server time",
        'dial-chat "What time is it in Tokyo?"',
        "make demo",
        "make test",
        "dial-chat serve",
    ]
    assert len(README.splitlines()) <= 150


def test_the_program_runs_from_its_wheel_under_both_names(newcomer: Newcomer) -> None:
    place = newcomer.run("python -c 'import dial_client; print(dial_client.__file__)'").stdout
    assert place.startswith(str(newcomer.folder / ".venv"))
    version = newcomer.run("dial-client --version").stdout
    assert version == newcomer.run("dial-chat --version").stdout != ""


def test_init_writes_the_configuration_of_the_first_steps(newcomer: Newcomer) -> None:
    settings = configuration.load(newcomer.folder / "servers.json")
    assert (settings.default_model, list(settings.servers)) == ("local", ["time"])


def test_the_first_question_is_answered_from_a_tool(newcomer: Newcomer) -> None:
    [question] = [command for command in list_commands("README.md") if command.startswith('dial-chat "')]
    if not HAS_MODEL:
        (newcomer.folder / "replies.json").write_text(json.dumps(REPLIES), encoding="utf-8")
        question = question.replace("dial-chat", "dial-chat -m scripted:replies.json")
    ran = newcomer.run(question)
    assert re.search(r"\d\d?:\d\d|noon", ran.stdout), ran.stdout
    turn = json.loads(newcomer.run(question.replace("dial-chat", "dial-chat --output json")).stdout)
    calls = [(call["tool"], call["arguments"].get("timezone"), call["is_error"]) for call in turn["tool_calls"]]
    assert (turn["stop_reason"], calls) == ("answered", [("get_current_time", "Asia/Tokyo", False)])


@pytest.mark.skipif(
    not HAS_MODEL, reason="DIAL_TEST_ANSWERS is not set: tests/e2e/test_documents.py runs it with a script"
)
def test_the_program_of_the_readme_runs(newcomer: Newcomer) -> None:
    (newcomer.folder / "first.py").write_text("\n".join(list_commands("README.md", "python")) + "\n", encoding="utf-8")
    assert "['get_current_time']" in newcomer.run("python first.py").stdout
