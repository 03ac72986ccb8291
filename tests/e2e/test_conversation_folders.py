"""Conversations belong to the folder in which they were held, and a single question begins no conversation of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.inner import Message, SQLStore
from tests.support.program import dial_chat, environment, write_config
from tests.support.pseudo_terminal import terminal

PLAIN = {"TERM": "dumb"}
ANSWERS = ["An answer."] * 9


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that holds the user's folders, and a configuration."""
    write_config(tmp_path, {}, ANSWERS)
    return tmp_path


@pytest.fixture
def elsewhere(home: Path) -> Path:
    """Another folder with a configuration, of the same user."""
    folder = home / "other"
    folder.mkdir()
    shutil.copy(home / "replies.json", folder)
    return folder


def run_in(folder: Path, home: Path, *words: str) -> Any:
    """Run dial-chat in `folder` as the user of `home`."""
    variables = environment(home)
    names = ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    return dial_chat(folder, *words, **{name: variables[name] for name in names})


def ask_in(folder: Path, home: Path, *words: str) -> dict[str, Any]:
    """Ask a single question in `folder`, and return the output in JSON."""
    ran = run_in(folder, home, "-m", f"scripted:{folder / 'replies.json'}", "--output", "json", *words)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def listed(folder: Path, home: Path, *words: str) -> list[dict[str, Any]]:
    ran = run_in(folder, home, "conversations", "--json", *words)
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def store_conversation(home: Path, title: str, **metadata: Any) -> str:
    """Store a conversation with these metadata, and return its id."""

    async def store_it() -> str:
        path = Path(environment(home)["XDG_DATA_HOME"]) / "dial-client" / "conversations.db"
        async with SQLStore.sqlite(path) as store:
            messages = [Message.user(title), Message.assistant("An answer.")]
            return (await store.create(title, messages, metadata=metadata)).id

    return anyio.run(store_it)


def test_continue_takes_the_latest_conversation_of_this_folder(home: Path, elsewhere: Path) -> None:
    ask_in(home, home, "Asked here")
    ask_in(elsewhere, home, "Asked there")
    assert ask_in(home, home, "--continue", "Again")["messages"][0]["content"] == "Again"
    assert {(row["title"], row["messages"], row["folder"]) for row in listed(home, home, "--all")} == {
        ("Asked here", 4, str(home)),
        ("Asked there", 2, str(elsewhere)),
    }


def test_continue_in_a_folder_without_a_conversation_names_the_option_all(home: Path, elsewhere: Path) -> None:
    ask_in(home, home, "Asked here")
    refused = run_in(elsewhere, home, "-m", f"scripted:{elsewhere / 'replies.json'}", "--continue", "Again")
    assert refused.returncode == 2
    assert "no conversation of this folder to continue (--continue --all" in refused.stderr
    ask_in(elsewhere, home, "--continue", "--all", "Again")
    assert [(row["title"], row["folder"]) for row in listed(home, home, "--all")] == [("Asked here", str(elsewhere))]


def test_single_questions_and_conversations_of_other_folders_are_listed_with_all(home: Path, elsewhere: Path) -> None:
    ask_in(home, home, "A single question")
    talk = store_conversation(home, "A talk", folder=str(home), model="local")
    store_conversation(home, "A talk there", folder=str(elsewhere))
    store_conversation(home, "An old talk")
    assert [(row["title"], row["model"]) for row in listed(home, home)] == [("A talk", "local")]
    assert [row["title"] for row in listed(home, home, "--all")] == [
        "An old talk",
        "A talk there",
        "A talk",
        "A single question",
    ]
    assert [row["one_shot"] for row in listed(home, home, "--all")] == [False, False, False, True]
    line = run_in(home, home, "conversations").stdout
    assert line == f"{talk[:8]}     now    2 msg  A talk · local\n"
    nothing = run_in(elsewhere.parent / "home", home, "conversations")
    assert (nothing.stdout, "--all lists those of all folders" in nothing.stderr) == ("", True)


def test_a_conversation_at_the_terminal_does_not_continue_a_single_question(home: Path) -> None:
    talk = store_conversation(home, "A talk", folder=str(home), model="scripted")
    question = ask_in(home, home, "A single question")["conversation_id"]
    with terminal(home, "--continue", **PLAIN) as screen:
        screen.until(f"--resume {question[:8]} continues your latest single question", f"Conversation {talk[:8]}")
        screen.type("\x04")
        assert screen.leave() == 0


def test_a_single_question_that_goes_on_at_the_terminal_is_a_conversation_of_its_folder(home: Path) -> None:
    question = ask_in(home, home, "A single question")["conversation_id"]
    with terminal(home, "--continue", **PLAIN) as screen:
        screen.until("of this folder to continue", f"--resume {question[:8]} continues your latest single question")
        assert screen.leave() == 2
    with terminal(home, "--resume", question[:8], **PLAIN) as screen:
        screen.until("> A single question", "An answer.")
        screen.type("More?\r")
        screen.until("An answer.")
        screen.type("\x04")
        assert screen.leave() == 0
    assert [(row["id"], row["messages"]) for row in listed(home, home)] == [(question, 4)]


def test_the_list_to_resume_from_has_other_folders_at_its_end(home: Path, elsewhere: Path) -> None:
    store_conversation(home, "A talk there", folder=str(elsewhere), model="local")
    store_conversation(home, "A talk", folder=str(home), model="local")
    with terminal(home, "--resume", **PLAIN) as screen:
        screen.until("1 ", "A talk · local", "2 ", "conversations of all folders", "(Enter: none):")
        screen.type("2\r")
        screen.until("A talk · local", "2 ", f"A talk there · local · {elsewhere}", "(Enter: none):")
        screen.type("2\r")
        screen.until("> A talk there")
        screen.type("/resume --all\r")
        screen.until("A talk there", "(Enter: none):")
        screen.type("\r")
        screen.until("The conversation stays the same.")
        screen.type("\x04")
        assert screen.leave() == 0


def test_a_word_that_leaves_in_other_programs_is_not_sent(home: Path) -> None:
    with terminal(home, **PLAIN) as screen:
        screen.type("?\r")
        screen.until("/quit", "leave (also Ctrl-D)")
        screen.type("exit\r")
        assert screen.leave() == 0
    assert listed(home, home, "--all") == []


def test_pages_of_a_folder_leave_out_the_conversations_of_other_folders(home: Path, elsewhere: Path) -> None:
    for number in range(3):
        store_conversation(home, f"Here {number}", folder=str(home))
        store_conversation(home, f"There {number}", folder=str(elsewhere))
    first = run_in(home, home, "conversations", "--json", "--limit", "2")
    assert [row["title"] for row in json.loads(first.stdout)] == ["Here 2", "Here 1"]
    cursor = first.stderr.partition("--cursor ")[2].strip()
    assert [row["title"] for row in listed(home, home, "--limit", "2", "--cursor", cursor)] == ["Here 0"]


def test_the_id_in_the_output_names_the_conversation_from_any_folder(home: Path, elsewhere: Path) -> None:
    id_ = ask_in(home, home, "Asked here")["conversation_id"]
    resumed = run_in(elsewhere, home, "-m", f"scripted:{elsewhere / 'replies.json'}", "--resume", id_, "Again")
    assert (resumed.returncode, resumed.stdout) == (0, "An answer.\n")
    assert f"this conversation was held in {home}" in resumed.stderr.replace("\n", " ")
    [row] = listed(home, home, "--all")
    assert (row["id"], row["messages"], row["folder"]) == (id_, 4, str(elsewhere))


def test_a_conversation_is_shown_exported_and_deleted_by_the_beginning_of_its_id(home: Path) -> None:
    id_ = store_conversation(home, "A talk")
    short = id_[:8]
    assert run_in(home, home, "conversations", "show", short).stdout == "user: A talk\nassistant: An answer.\n"
    assert run_in(home, home, "conversations", "export", short.upper()).stdout.startswith("# A talk")
    refused = run_in(home, home, "conversations", "delete", id_[:3])
    assert (refused.returncode, "at least 4 characters" in refused.stderr) == (2, True)
    assert run_in(home, home, "conversations", "delete", short).returncode == 0
    assert listed(home, home, "--all") == []


def test_an_ambiguous_beginning_of_an_id_names_the_ids(home: Path) -> None:
    async def store_two() -> None:
        path = Path(environment(home)["XDG_DATA_HOME"]) / "dial-client" / "conversations.db"
        async with SQLStore.sqlite(path) as store:
            for id_ in ("Thread-1", "Thread-2"):
                await store.create(id_, conversation_id=id_)

    anyio.run(store_two)
    refused = run_in(home, home, "conversations", "delete", "Thread-")
    assert (refused.returncode, "Thread-2, Thread-1" in refused.stderr) == (2, True)
    assert run_in(home, home, "conversations", "delete", "Thread-1").returncode == 0


def test_the_title_of_a_question_has_no_text_of_its_attachments(home: Path) -> None:
    (home / "notes.txt").write_text("the attached words")
    ask_in(home, home, "What is in @notes.txt")
    ran = dial_chat(home, "Write a commit message", stdin="the piped words")
    assert ran.returncode == 0
    titles = [row["title"] for row in listed(home, home, "--all")]
    assert titles == ["Write a commit message", "What is in @notes.txt"]


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="the limit is one of POSIX")
def test_without_room_for_conversations_the_error_says_how_to_get_an_answer(home: Path) -> None:
    words = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "dial_client", "Go on"]
    ran = subprocess.run(words, cwd=home, env=environment(home), capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "the database of conversations failed" in ran.stderr
    assert "--no-save answers without storing the conversation" in ran.stderr


def test_the_option_all_needs_a_conversation_to_continue(home: Path) -> None:
    refused = dial_chat(home, "--all", "Hi")
    assert (refused.returncode, "--all belongs to --continue or --resume" in refused.stderr) == (2, True)
