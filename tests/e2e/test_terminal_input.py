"""The input line in a real terminal, with and without a live area."""

from __future__ import annotations

import base64
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.program import dial_chat, write_config
from tests.support.pseudo_terminal import terminal

PNG = b"\x89PNG\r\n\x1a\n"
LONG = "".join(f"pasted line {number}\n" for number in range(200))


def sent_messages(folder: Path) -> list[str]:
    """Return the messages of the user in the store, as JSON."""
    (database,) = folder.rglob("conversations.db")
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT message FROM messages ORDER BY rowid").fetchall()
    return [text for (text,) in rows if json.loads(text)["role"] == "user"]


def test_a_paste_into_a_terminal_that_only_prints_is_one_question_and_runs_nothing(tmp_path: Path) -> None:
    write_config(tmp_path, replies={"replies": ["Understood."], "after": "repeat"})
    with terminal(tmp_path, TERM="dumb", SHELL="/bin/sh") as screen:
        screen.until(">")
        screen.type("Translate this:\r!touch made\r/quit\r\r@nothing.txt\r")
        screen.until("Understood.", ">")
        screen.type("And\\\rthis\r")
        screen.until("Understood.", ">")
        screen.type("!touch made\r/quit\r")
        screen.until("Understood.", ">")
        screen.type("\x04")
        assert screen.leave() == 0
    first, second, third = sent_messages(tmp_path)
    assert json.loads(first)["content"] == "Translate this:\n!touch made\n/quit\n\n@nothing.txt"
    assert json.loads(second)["content"] == "And\nthis"
    assert json.loads(third)["content"] == "!touch made\n/quit"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["live area", "lines"])
def test_typed_pasted_attached_and_edited_input_and_shell_output_reach_the_model(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    write_config(tmp_path, replies={"replies": ["Understood."], "after": "repeat"})
    (tmp_path / "notes.txt").write_text("the content of the notes")
    (tmp_path / "pic.png").write_bytes(PNG)
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys, pathlib; file = pathlib.Path(sys.argv[1]); file.write_text(file.read_text() + ' edited')"
    )
    environment = {"EDITOR": f"{sys.executable} {editor}", "SHELL": "/bin/sh"}
    with terminal(tmp_path, *options, **environment) as screen:
        screen.until(">")
        screen.type("one\\\rtwo\x1b\rthree\nfour\r")
        screen.until("Understood.")
        screen.type(f"What is\x1b[200~{LONG}\x1b[201~\r")
        screen.until("[pasted 200 lines]", "Understood.")
        screen.type("Look at @pic.png, (@notes.txt)\r")
        screen.until("Understood.")
        screen.type("see @./nothing\r")
        screen.until("not sent: there is no file ./nothing", "see @./nothing")
        screen.type("\x03!echo out-$((40+2)); tty; exit 3\r")
        shown = screen.until("out-42", "/dev/", "exit code 3, 2 lines; !! shows it to the model")
        assert "not a tty" not in shown
        screen.type("!yes in-the-background &\r")
        screen.until("exit code 0")
        screen.type("!echo out-$((40+2)); tty; exit 3\r")
        screen.until("exit code 3")
        screen.type("!!\r")
        screen.until("is sent with your next message")
        screen.type(" explain\x18\x05")
        screen.until("edited")
        screen.type("\r")
        screen.until("Understood.")
        screen.type("\x04")
        assert screen.leave() == 0
    first, second, third, fourth = sent_messages(tmp_path)
    assert json.loads(first)["content"] == "one\ntwo\nthree\nfour"
    assert json.loads(second)["content"].startswith("What ispasted line 0\npasted line 1\n")
    assert base64.b64encode(PNG).decode() in third and "the content of the notes" in third
    assert json.loads(fourth)["content"][0]["text"] == "explain edited"
    assert "exit code 3]\\nout-42\\n/dev/" in fourth
    (history,) = tmp_path.rglob("history")
    assert "+three" in history.read_text() and "explain" not in history.read_text()


def test_a_one_shot_question_attaches_files_or_is_an_error(tmp_path: Path) -> None:
    write_config(tmp_path, replies={"replies": ["Understood."], "after": "repeat"})
    (tmp_path / "notes.txt").write_text("the content of the notes")
    assert dial_chat(tmp_path, "Sum up @notes.txt", stdin="see @/etc/hostname").stdout == "Understood.\n"
    (message,) = sent_messages(tmp_path)
    assert "the content of the notes" in message and "[file /etc/hostname" not in message
    refused = dial_chat(tmp_path, "Sum up @note.txt")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "there is no file note.txt: did you mean @notes.txt?" in refused.stderr
    outside = dial_chat(tmp_path, f"Sum up @{tmp_path.parent}")
    assert (outside.returncode, outside.stdout) == (2, "")
    assert "is outside of the current folder: without a terminal only files in it are attached" in outside.stderr
