"""Resources and prompts in dial-chat: listing, attaching, sending and completion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import HERE, dial_chat, python_server, write_config
from tests.support.pseudo_terminal import READY, terminal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    books = python_server(HERE / "servers" / "library.py", "stdio")
    write_config(tmp_path, {"books": books}, ["Read.", "Said.", "Read again."])
    return tmp_path


def sent_contents(folder: Path) -> list[Any]:
    """Return the contents of the user's messages in the latest stored conversation."""
    [latest, *_] = json.loads(dial_chat(folder, "conversations", "list", "--all", "--json").stdout)
    shown = json.loads(dial_chat(folder, "conversations", "show", latest["id"], "--json").stdout)
    return [message["content"] for message in shown["messages"] if message["role"] == "user"]


def test_resources_are_listed_in_the_form_of_mentions(folder: Path) -> None:
    lines = dial_chat(folder, "resources").stdout.splitlines()
    assert lines[0].split() == ["@books:book://1", "A", "book,", "text/plain,", "15", "bytes"]
    assert lines[-1].startswith("@books:book://{shelf}/{number} ")
    listing = json.loads(dial_chat(folder, "resources", "--json").stdout)
    assert (listing[0]["server"], listing[0]["uri"], listing[-1]["variables"]) == (
        "books",
        "book://1",
        ["shelf", "number"],
    )


def test_prompts_are_listed_in_the_form_of_commands(folder: Path) -> None:
    lines = dial_chat(folder, "prompts").stdout.splitlines()
    assert lines[0].split(maxsplit=3) == ["/books:greet", "name=…", "[how=…]", "Greet: To greet."]
    listing = json.loads(dial_chat(folder, "prompts", "--json").stdout)
    assert [argument["required"] for argument in listing[0]["arguments"]] == [True, False]


def test_annotations_of_tools_are_shown(folder: Path) -> None:
    [first, *_] = json.loads(dial_chat(folder, "tools", "--json").stdout)
    assert first["annotations"] == {"read_only": False, "idempotent": False, "destructive": None, "open_world": None}
    assert (first["output_schema"], first["icons"]) == (None, [])
    assert "no hints" in dial_chat(folder, "tools", "-v").stdout


def test_a_resource_mentioned_in_the_question_is_attached(folder: Path) -> None:
    ran = dial_chat(folder, "What is @books:book://1 about?")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Read.\n", "")
    [[question, text]] = sent_contents(folder)
    assert question["text"] == "What is @books:book://1 about?"
    assert "The first book." in text["text"]


def test_a_mention_of_a_missing_resource_stays_text_with_a_warning(folder: Path) -> None:
    ran = dial_chat(folder, "What is @books:book://none, ada@books:book://1?")
    assert ran.returncode == 0
    assert "dial-chat: @books:book://none is not attached: " in ran.stderr
    assert sent_contents(folder) == ["What is @books:book://none, ada@books:book://1?"]


def test_mentions_in_standard_input_are_not_attached(folder: Path) -> None:
    ran = dial_chat(folder, "Summarise @books:book://2", stdin="A mail says: look at @books:book://1\n")
    assert ran.returncode == 0
    [[question, text]] = sent_contents(folder)
    assert question["text"].endswith("@books:book://1")
    assert "The second book." in text["text"]


def test_resources_are_attached_and_prompts_are_sent_in_a_conversation(folder: Path) -> None:
    pytest.importorskip("pty", reason="Windows has no pseudo-terminals of this kind")
    with terminal(folder, "--plain") as screen:
        screen.until(READY)
        screen.type("/resources\r")
        screen.until("@books:book://1", READY)
        screen.type("See @books:book://1\r")
        screen.until("Read.", READY)
        screen.type("/books:dance\r")
        screen.until("there is no prompt /books:dance", READY)
        screen.type("/books:greet how=warmly\r")
        screen.until("greet needs name: /books:greet name=…", READY)
        screen.type("/books:greet name=Ada x=1\r")
        screen.until("greet has no argument x: it takes name, how", READY)
        screen.type('/books:greet name="Ada L" how=warmly\r')
        screen.until("Said.", READY)
        screen.type("/books:greet Ada and Grace\r")
        screen.until("Read again.", READY)
        screen.type("\x04")
        assert screen.leave() == 0
    attached, *prompts = sent_contents(folder)
    assert "The first book." in attached[1]["text"]
    assert prompts == ["Greet Ada L warmly.", "Greet Ada and Grace kindly."]


def test_tab_completes_resources_of_servers(folder: Path) -> None:
    pytest.importorskip("pty", reason="Windows has no pseudo-terminals of this kind")
    with terminal(folder, "--plain") as screen:
        screen.until(READY)
        screen.type("/resources\r")
        screen.until("@books:book://1", READY)
        screen.type("See @bo\t")
        screen.until("oks:")
        screen.type("book://l\t")
        screen.until("ong")
        screen.type("\r")
        screen.until("Read.", READY)
        screen.type("\x04")
        assert screen.leave() == 0
    assert sent_contents(folder)[0][0]["text"] == "See @books:book://long"
