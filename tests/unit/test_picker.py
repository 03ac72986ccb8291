"""A list in the live area, and the pager of long results."""

from __future__ import annotations

import re

import anyio
import pytest

from tests.inner import MONO, Choice, ConfigError, Picker, find_pager, is_longer

ITEMS = [Choice(f"id{number}", f"Talk {number}") for number in range(30)]


async def find(words: str) -> list[Choice]:
    if words == "broken":
        raise ConfigError("the database is locked")
    return [item for item in ITEMS if words.lower() in item.label.lower()]


def lines_of(picker: Picker, columns: int = 60, rows: int = 6) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in picker.format_lines(columns, rows)]


@pytest.mark.anyio
async def test_typed_text_filters_the_list_and_arrow_keys_move_the_selection() -> None:
    picker = Picker(find, MONO, lambda: None)
    async with anyio.create_task_group() as group:
        group.start_soon(picker.follow)
        await anyio.wait_all_tasks_blocked()
        assert lines_of(picker)[:2] == ["→ Talk 0", "  Talk 1"]
        assert lines_of(picker)[-1].startswith("1 of 30 · type to search")
        picker.move(-1)
        assert lines_of(picker)[-2] == "→ Talk 29"
        picker.move(1)
        picker.move(10)
        assert "→ Talk 10" in lines_of(picker)
        picker.type("talk 2")
        await anyio.wait_all_tasks_blocked()
        assert lines_of(picker)[0] == "→ Talk 2"
        picker.found = ITEMS * 4
        assert "1 of 120 or more · " in lines_of(picker, 80)[-1], "a search does not return all of a long list"
        picker.type("nothing\x1b[2J")
        await anyio.wait_all_tasks_blocked()
        assert lines_of(picker)[0] == "  nothing contains 'nothing'"
        assert picker.value is None
        picker.move(1)
        picker.type("broken")
        await anyio.wait_all_tasks_blocked()
        assert lines_of(picker)[0] == "the database is locked"
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_columns_of_a_list_are_aligned() -> None:
    async def find_rows(_: str) -> list[Choice]:
        return [Choice("a", "610ed89b     now  Rain"), Choice("b", "720ed89b  12 min  Sun")]

    picker = Picker(find_rows, MONO, lambda: None)
    await picker.update()
    assert lines_of(picker)[:2] == ["→ 610ed89b     now  Rain", "  720ed89b  12 min  Sun"]


@pytest.mark.anyio
async def test_enter_selects_from_the_results_of_the_latest_search() -> None:
    picker = Picker(find, MONO, lambda: None)
    await picker.update()
    picker.move(3)
    picker.type("talk 17")
    await picker.update()
    assert picker.value == "id17"


@pytest.mark.anyio
async def test_the_list_fits_into_the_terminal() -> None:
    async def find_long(_: str) -> list[Choice]:
        return [Choice(str(at), "日本\x1b]0;owned\x07\n> forged " * 40) for at in range(50)]

    picker = Picker(find_long, MONO, lambda: None)
    await picker.update()
    for columns in (20, 60, 200):
        for rows in (1, 2, 8, 40):
            lines = lines_of(picker, columns, rows)
            assert len(lines) <= rows
            assert not re.search("[\x1b\x07\n]", "".join(lines))
            assert max(map(len, lines)) <= columns


def test_the_environment_determines_the_pager_for_texts_longer_than_the_screen() -> None:
    assert find_pager({"PAGER": "less -S"}) == ["less", "-S"]
    assert find_pager({"PAGER": ""}) == []
    assert find_pager({"PAGER": "less -P'x"}) == ["less -P'x"]
    assert is_longer("line\n" * 23, 80, 24)
    assert not is_longer("line\n" * 22, 80, 24)
    assert is_longer("日本" * 1_000, 80, 24)
