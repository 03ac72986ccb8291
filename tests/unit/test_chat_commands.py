"""Chat commands: how they are looked up, and how the command line is split."""

from __future__ import annotations

import pytest

from tests.inner import (
    COMMANDS,
    Choice,
    describe_commands,
    describe_unknown,
    find_code,
    find_near_command,
    is_bare_word,
    normalize_resume,
    pick,
    run,
    split_command,
    to_osc52,
)
from tests.support.typed_screen import TypedScreen


def test_every_command_has_a_unique_name_and_a_description_of_one_line() -> None:
    names = [command.name for command in COMMANDS]
    assert len(set(names)) == len(names) == len(describe_commands())
    assert all(name.startswith("/") and name == name.lower() for name in names)
    assert [c.name for c in COMMANDS if not 0 < len(c.description) <= 60 or "\n" in c.description] == []


def test_the_error_for_an_unknown_command_names_the_nearest_command() -> None:
    assert "did you mean /model?" in describe_unknown("/modle")
    assert "did you mean /new?" in describe_unknown("/mew")
    assert describe_unknown("/\x1b[2Jzzz").isprintable()


@pytest.mark.anyio
async def test_an_item_is_chosen_by_its_number_after_a_search() -> None:
    items = [Choice(f"id{n}", f"Talk {n}") for n in range(30)]
    searches: list[str] = []

    async def search(words: str) -> list[Choice]:
        searches.append(words)
        return [item for item in items if words in item.label]

    screen = TypedScreen("Talk 2", "99", "nothing", "Talk 2", "2")
    assert await pick(screen, "Talk", search, nothing="None.") == "id20"
    assert searches == ["", "", "Talk 2", "99", "nothing", "Talk 2"]
    assert await pick(TypedScreen(""), "Talk", search, nothing="None.") is None
    items.clear()
    empty = TypedScreen()
    assert await pick(empty, "Talk", search, nothing="None.") is None
    assert empty.prose == ["None."]


def test_code_blocks_are_extracted_unchanged() -> None:
    text = "a\n```python\nprint('`')\n\n  x\n```\nb\n~~~\nc\n~~~\n````\n```\nd\n````\n```\nopen"
    assert find_code(text) == ["print('`')\n\n  x", "c", "```\nd", "open"]


def test_a_text_is_copied_to_the_clipboard_with_osc_52() -> None:
    assert to_osc52("ä".encode(), {}) == "\x1b]52;c;w6Q=\x07"
    wrapped = to_osc52(b"x" * 1000, {"STY": "1"})
    assert wrapped.count("\x1bP") == wrapped.count("\x1b\\") > 3


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("modles", "models"),
        ("Tools", "tools"),
        ("server", "servers"),
        ("login", "servers login NAME"),
        ("help", "help"),
        ("update", "pip install --upgrade dial-client"),
        *((word, None) for word in ("hello", "hi", "thanks", "weather", "why", "test", "review", "summarize", "go")),
    ],
)
def test_a_word_similar_to_a_command_suggests_the_command(word: str, near: str | None) -> None:
    assert find_near_command(word) == near


def test_only_a_single_word_may_be_meant_as_a_command() -> None:
    bare = [["modles"], ["-v", "modles"], ["--model", "x", "modles"]]
    questions = [["what is this"], ["--", "modles"], ["modles", "x"], ["--system", "modles"], ["wär"], ["-v"], []]
    assert [is_bare_word(words) for words in bare] == [True] * len(bare)
    assert [is_bare_word(words) for words in questions] == [False] * len(questions)


def test_a_word_like_a_command_is_not_sent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["modles"]) == 2
    assert "did you mean: dial-chat models; to ask the model: dial-chat -- modles" in capsys.readouterr().err


def test_a_resume_without_an_id_asks_for_a_conversation() -> None:
    assert normalize_resume(["--resume"]) == ["--resume="]
    assert normalize_resume(["--resume", "-v"]) == ["--resume=", "-v"]
    assert normalize_resume(["--resume", "abc", "Hi"]) == ["--resume", "abc", "Hi"]
    assert split_command(["-v", "tools"]) == ("tools", ["-v"])


def test_the_default_command_of_a_group_is_found_without_its_name() -> None:
    assert split_command(["servers"]) == ("servers list", [])
    assert split_command(["-c", "my.json", "servers", "--json"]) == ("servers list", ["-c", "my.json", "--json"])
    assert split_command(["servers", "-c", "my.json", "login", "docs"]) == ("servers login", ["-c", "my.json", "docs"])
    words = ["time", "--", "servers", "list"]
    assert split_command(["servers", "add", *words]) == ("servers add", words)


def test_a_question_may_begin_with_the_word_help() -> None:
    assert split_command(["help", "ci"]) == ("help", ["ci"])
    assert split_command(["help", "me", "write", "a", "test"])[0] == ""
    assert split_command(["servers", "ad", "x"]) == ("servers", ["ad", "x"])
    assert split_command(["servers", "--help"]) == ("servers", ["--help"])
