"""AGENTS.md and CLAUDE.md: nothing of a folder is used before it is trusted, and the model reads what is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import dial_chat, environment, write_config
from tests.support.screens import screen

AGENTS = "Write all answers in French.\n"


def config_folder(folder: Path) -> Path:
    """Return the user's configuration folder, which this makes."""
    variables = environment(folder)
    path = Path(variables.get("XDG_CONFIG_HOME") or Path(variables["HOME"], ".config")) / "dial-client"
    path.mkdir(parents=True, exist_ok=True)
    return path


def read_instructions(recording: Path) -> list[list[str]]:
    """Return the texts of the instructions of each recorded request."""
    requests: list[Any] = []
    for line in recording.read_text(encoding="utf-8").splitlines():
        requests += find_all(json.loads(line), "instructions")
    return [[item["text"] if isinstance(item, dict) else str(item) for item in found] for found in requests]


def find_all(value: Any, key: str) -> list[Any]:
    if isinstance(value, dict):
        return [
            *([value[key]] if key in value else []),
            *(hit for item in value.values() for hit in find_all(item, key)),
        ]
    return [hit for item in value for hit in find_all(item, key)] if isinstance(value, list) else []


@pytest.mark.once
def test_instructions_of_a_folder_are_used_once_they_are_trusted(tmp_path: Path) -> None:
    write_config(tmp_path, {}, {"replies": ["Oui."], "after": "repeat"})
    (tmp_path / "AGENTS.md").write_text(AGENTS + "line\n" * 20 + "\x1b]0;owned\x07\n", encoding="utf-8")
    ran = dial_chat(tmp_path, "Hello")
    assert "not used, because you have not trusted it: AGENTS.md" in ran.stderr
    assert ran.stdout.strip() == "Oui."
    for answer, names in (("n", False), (None, False), ("change", True), (None, True)):
        if answer == "change":
            (tmp_path / "AGENTS.md").write_text(AGENTS, encoding="utf-8")
        with screen(tmp_path, "--no-save") as person:
            if answer is not None:
                person.until("This folder has texts for the model")
                person.until("Write all answers in French.")
                person.until("more lines" if answer == "n" else "[v]iew every line")
                person.type("t\r" if names else "n\r")
            person.until("no servers, no tools")
            person.type("/context\r")
            shown = person.until("context")
            if names:
                shown = person.until("instructions of files")
            person.type("\x04")
            assert person.leave() == 0
        assert ("instructions AGENTS.md" in shown) is names
        assert ("This folder has texts" in shown) is (answer is not None), "asked once"
        assert b"owned" not in person.raw or b"\x1b]0;owned" not in person.raw
    ran = dial_chat(tmp_path, "Hello", "--record", "talk.jsonl")
    assert "not used" not in ran.stderr
    assert any(AGENTS.strip() in text for texts in read_instructions(tmp_path / "talk.jsonl") for text in texts)
    assert dial_chat(tmp_path, "trust", "--revoke", "AGENTS.md").stdout.startswith("not trusted any more")
    assert "not used" in dial_chat(tmp_path, "Hello").stderr
    assert AGENTS.strip() in dial_chat(tmp_path, "trust", "AGENTS.md").stdout
    assert "not used" not in dial_chat(tmp_path, "Hello").stderr
    (tmp_path / "AGENTS.md").write_text("Obey me.\n", encoding="utf-8")
    with screen(tmp_path, "--no-save") as person:
        person.until("AGENTS.md (1 line, changed since you trusted it)")
        person.until("-Write all answers in French.")
        person.until("+Obey me.")


@pytest.mark.once
def test_the_users_own_instructions_need_no_question_and_can_be_left_out(tmp_path: Path) -> None:
    write_config(tmp_path, {}, {"replies": ["Yes."], "after": "repeat"})
    own = config_folder(tmp_path) / "AGENTS.md"
    own.write_text("Be brief. " + "x" * 50_000, encoding="utf-8")
    ran = dial_chat(tmp_path, "Hello", "--record", "talk.jsonl")
    assert f"instructions are cut: the model reads {own} (40,000 of 50,010 characters)" in " ".join(ran.stderr.split())
    [[text]] = read_instructions(tmp_path / "talk.jsonl")
    assert text.startswith("Instructions of the user, from the user's own AGENTS.md:\n\nBe brief.")
    assert text.endswith("[cut here: the file is longer]")
    ran = dial_chat(tmp_path, "Hello", "--record", "bare.jsonl", "--no-instructions")
    assert "cut" not in ran.stderr
    assert not any(read_instructions(tmp_path / "bare.jsonl"))


@pytest.mark.once
def test_the_same_instructions_under_two_names_are_sent_once(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Yes."])
    for name in ("AGENTS.md", "CLAUDE.md"):
        (tmp_path / name).write_text(AGENTS, encoding="utf-8")
    dial_chat(tmp_path, "Hello", "--trust", "--record", "talk.jsonl")
    [texts] = read_instructions(tmp_path / "talk.jsonl")
    head = "Instructions of the user, from the working folder's AGENTS.md:"
    assert [text for text in texts if "French" in text] == [f"{head}\n\n{AGENTS.strip()}"]


@pytest.mark.once
def test_own_commands_send_their_text_with_the_arguments(tmp_path: Path) -> None:
    write_config(tmp_path, {}, {"replies": ["Done."], "after": "repeat"})
    own, folder = config_folder(tmp_path) / "commands", tmp_path / ".dial" / "commands"
    for path in (own, folder):
        path.mkdir(parents=True)
    (own / "fix.md").write_text("Mine.", encoding="utf-8")
    (own / "note.md").write_text("Write a note. Nothing of @servers.json.", encoding="utf-8")
    (own / "help.md").write_text("No.", encoding="utf-8")
    (folder / "fix.md").write_text(
        "---\ndescription: find the cause of an issue\nargument-hint: NUMBER\n---\n"
        "Issue $1, second $2, all $ARGUMENTS.",
        encoding="utf-8",
    )
    with screen(tmp_path, "--record", "talk.jsonl", columns=250, rows=60) as person:
        person.until(".dial/commands/fix.md (5 lines)")
        person.type("t\r")
        person.until("no servers, no tools")
        person.until("help.md is no command: /help is a command of dial-chat")
        person.until("is used for /fix, and not")
        person.type("/fi")
        person.until("find the cause of an issue")
        person.type('x 7 "a b"\r')
        person.until("Done.")
        person.type("/note about cats\r")
        person.until("Done.", 2)
        person.type("/help fix\r")
        person.until("/fix NUMBER  find the cause of an issue")
        person.type("/fixx\r")
        person.until("did you mean /fix?")
        person.type("/quit\r")
        assert person.leave() == 0
    recorded = (tmp_path / "talk.jsonl").read_text(encoding="utf-8")
    assert json.dumps('Issue 7, second a b, all 7 "a b".') in recorded
    assert json.dumps("Write a note. Nothing of @servers.json.\n\nabout cats") in recorded, "typed text alone attaches"


@pytest.mark.once
def test_reload_reads_instructions_and_own_commands_and_asks_about_those_of_the_folder(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Bonjour."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.until_last(">")
        commands = config_folder(tmp_path) / "commands"
        commands.mkdir()
        (commands / "greet.md").write_text("Say hello to $1.", encoding="utf-8")
        (tmp_path / "AGENTS.md").write_text(AGENTS, encoding="utf-8")
        person.type("/reload\r")
        person.until("This folder has texts for the model")
        person.until_last("[t]rust, [n]ot now")
        person.type("t\r")
        person.until("1 file with instructions, 1 own command: 2 new or changed.")
        person.until("the rules were read again")
        person.until_last(">")
        person.type("/gre")
        person.until("Say hello to $1.")
        person.type("et Ada\r")
        person.until("Bonjour.")
        person.type("/context\r")
        person.until("instructions of files")
