"""``dial-chat conversations``: stored conversations are listed, shown, exported and imported."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.inner import CUT_OFF, Message, SQLStore
from tests.support.program import LONG, dial_chat, environment, started, write_config
from tests.support.temporary_stores import MESSAGES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three stored conversations, the last one from a killed program."""

    async def talk() -> None:
        store = SQLStore.sqlite(Path(environment(tmp_path)["XDG_DATA_HOME"]) / "dial-client" / "conversations.db")
        for title in ("Weather in Köln", "Time in Tokyo"):
            await store.create(title, MESSAGES)
        made = await store.create("Broken")
        await store.acquire(made.id, "turn", [Message.user("Write!")], expected_count=0, lease=0.0, title="")
        await store.renew(made.id, "turn", 0.0, [Message.assistant(f"Once upon\n\n{CUT_OFF}")])
        await store.aclose()

    anyio.run(talk)
    return tmp_path


def listed(folder: Path, *words: str) -> list[dict[str, Any]]:
    process = dial_chat(folder, "conversations", "list", "--all", "--json", *words)
    assert process.returncode == 0, process.stderr
    found: list[dict[str, Any]] = json.loads(process.stdout)
    return found


def test_the_list_is_searched_and_has_pages(folder: Path) -> None:
    everything = listed(folder)
    assert [row["title"] for row in everything] == ["Broken", "Time in Tokyo", "Weather in Köln"]
    assert [(row["messages"], row["running"]) for row in everything] == [(1, False), (4, False), (4, False)]
    assert all(datetime.fromisoformat(row["created_at"]).tzinfo for row in everything)
    assert listed(folder, "--search", "köln NOON") == everything[2:]
    first = dial_chat(folder, "conversations", "--all", "--limit", "2")
    assert [line.split("  ")[0] for line in first.stdout.splitlines()] == [row["id"][:8] for row in everything[:2]]
    cursor = first.stderr.partition("--cursor ")[2].strip()
    assert listed(folder, "--limit", "2", "--cursor", cursor) == everything[2:]


def test_the_turn_of_a_killed_program_is_shown_as_interrupted(folder: Path) -> None:
    shown = dial_chat(folder, "conversations", "show", listed(folder)[0]["id"])
    assert shown.stdout == f"user: Write!\nassistant: Once upon\n\n{CUT_OFF}\n"
    assert "interrupted" in shown.stderr


def test_a_note_says_that_a_command_waits_for_the_turn_of_another_program(folder: Path) -> None:
    file = Path(environment(folder)["XDG_DATA_HOME"]) / "dial-client" / "conversations.db"
    id_ = listed(folder)[0]["id"]

    async def take() -> None:
        store = SQLStore.sqlite(file)
        assert await store.acquire(id_, "theirs", [Message.user("Theirs.")], expected_count=1, lease=LONG, title="")
        await store.aclose()

    async def let_go() -> None:
        store = SQLStore.sqlite(file)
        await store.release(id_, "theirs")
        await store.aclose()

    anyio.run(take)
    write_config(folder, {}, ["Hello."])
    with started(folder, "--continue", "--all", "Hi") as process:
        assert process.stderr
        assert any("waiting for it" in line for line in process.stderr)
        anyio.run(let_go)
        assert (process.communicate(timeout=LONG)[0], process.returncode) == ("Hello.\n", 0)


def test_an_exported_conversation_can_be_imported(folder: Path) -> None:
    id_ = listed(folder)[1]["id"]
    exported = dial_chat(folder, "conversations", "export", id_, "--format", "json")
    assert exported.stdout == dial_chat(folder, "conversations", "show", id_, "--json").stdout
    (folder / "taken.json").write_text(exported.stdout)
    made = dial_chat(folder, "conversations", "import", "taken.json").stdout.strip()
    piped = dial_chat(folder, "conversations", "import", "-", "--json", stdin=exported.stdout)
    assert [row["id"] for row in listed(folder)[:2]] == [json.loads(piped.stdout)["id"], made]
    again = json.loads(dial_chat(folder, "conversations", "export", made, "--json").stdout)
    assert again["messages"] == [message.to_dict() for message in MESSAGES]


def test_an_export_is_markdown_by_default(folder: Path) -> None:
    exported = dial_chat(folder, "conversations", "export", listed(folder)[1]["id"])
    assert exported.stdout.startswith("# Time in Tokyo\n\n## User\n\nWhat time is it?\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["export"], "needs the id"),
        (["import"], "needs a file"),
        (["import", "missing.json"], "missing.json: cannot be read"),
        (["import", "."], "cannot be read"),
        (["export", "no-such-id"], "no-such-id"),
        (["export", "no-such-id", "--format", "pdf"], "unknown form"),
        (["list", "--cursor", "x"], "invalid cursor"),
        (["list", "--limit", "0"], "--limit is at least 1"),
    ],
)
def test_invalid_arguments_are_a_usage_error(tmp_path: Path, words: list[str], problem: str) -> None:
    process = dial_chat(tmp_path, "conversations", *words)
    assert (process.returncode, process.stdout) == (2, "")
    assert problem in process.stderr
