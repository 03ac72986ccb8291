"""Tables of invisible characters: complete, and the same in Python and in the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.inner import FOLDER, count_unseen, escape_unseen, parse_ranges, sanitize
from tests.inner import safe_text as tables
from tests.support.program import LONG

NODE = shutil.which("node")
VISIBLE_FORMATS = frozenset(
    [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)]
)
"""Visible format characters: Arabic, Syriac and Kaithi number signs, and Egyptian hieroglyph format controls."""
SHARED = (
    "DEFAULT_IGNORABLE", "CONTROL", "PICTOGRAPHIC", "EMOJI_MODIFIER", "VIRAMA",
    "DUAL_JOINING", "RIGHT_JOINING", "TRANSPARENT",
)  # fmt: skip
TEXTS = [
    "", "plain", "a\u200bb", "👩\u200d💻", "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3 1\ufe0f", "👩\u200d\u200d💻", "\u202etxt",
    "\u0645\u06cc\u200c\u062e", "\u0631\u200c\u0647", "\u06cc\u064e\u0651\u200c\u0627", "\u0915\u094d\u200d\u0937",
    "\u09b0\u200d\u09cd\u09af", "a\u2028b\r\n\t\x1b[2J", "\U000e0041\u3164\uffa0", "🏃🏽\u200d♀\ufe0f",
]  # fmt: skip


def points(table: str) -> set[int]:
    return {point for found in parse_ranges(table) for point in found}


def test_every_invisible_format_character_is_in_a_table() -> None:
    formats = {point for point in range(0x110000) if unicodedata.category(chr(point)) == "Cf"}
    assert formats - points(tables.DEFAULT_IGNORABLE) - points(tables.CONTROL) <= VISIBLE_FORMATS


def test_the_number_of_ignorable_characters_is_that_of_unicode() -> None:
    assert len(points(tables.DEFAULT_IGNORABLE)) == 4174
    assert points(tables.BIDI_CONTROL) < points(tables.DEFAULT_IGNORABLE)


def test_every_bidirectional_control_is_in_the_table() -> None:
    turns = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    found = {point for point in range(0x110000) if unicodedata.bidirectional(chr(point)) in turns}
    assert found | {0x61C, 0x200E, 0x200F} == points(tables.BIDI_CONTROL)


def test_a_single_ignorable_character_is_removed() -> None:
    assert [hex(point) for point in sorted(points(tables.DEFAULT_IGNORABLE)) if sanitize(chr(point))] == []
    assert sanitize("".join(map(chr, sorted(points(tables.DEFAULT_IGNORABLE))))) == ""


def test_the_tables_for_joiners_agree_with_the_unicode_database() -> None:
    viramas = {point for point in range(0x110000) if unicodedata.combining(chr(point)) == 9}
    assert viramas <= points(tables.VIRAMA)
    marks = {unicodedata.category(chr(point)) for point in points(tables.TRANSPARENT)}
    assert marks <= {"Mn", "Cn"}
    for letters in (tables.DUAL_JOINING, tables.RIGHT_JOINING):
        assert {unicodedata.category(chr(point)) for point in points(letters)} <= {"Lo", "Lm", "Cn"}
    assert not points(tables.DUAL_JOINING) & points(tables.RIGHT_JOINING)


def test_the_joining_types_are_those_of_the_idna_package() -> None:
    known = getattr(pytest.importorskip("idna.idnadata"), "joining_types", {})
    if not all(isinstance(kind, str) for kind in known):
        pytest.skip("this version of idna keeps its table in another form")
    arabic = points("600-6ff 750-77f 870-8ff") - points(tables.DEFAULT_IGNORABLE)
    for kind, table in (("D", tables.DUAL_JOINING), ("R", tables.RIGHT_JOINING), ("T", tables.TRANSPARENT)):
        packed = {point for item in known[kind] for point in range(item >> 32, item & 0xFFFFFFFF)}
        assert packed & arabic == points(table)


def read_page_table(name: str) -> str:
    found = re.search(rf"const {name} =([^;]*);", (FOLDER / "invisible_characters.js").read_text("utf-8"))
    assert found is not None
    return "".join(re.findall(r'"([^"]*)"', found[1]))


@pytest.mark.parametrize("name", SHARED)
def test_the_page_has_the_same_table(name: str) -> None:
    assert points(read_page_table(name)) == points(getattr(tables, name))


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_page_escapes_the_same_characters_singly_and_in_sequences(tmp_path: Path) -> None:
    assert NODE is not None
    shutil.copy(FOLDER / "invisible_characters.js", tmp_path / "invisible_characters.mjs")
    script = (
        "import {escapeInvisible, countInvisible} from './invisible_characters.mjs'; import fs from 'node:fs';"
        "const each = []; for (let point = 0; point < 0x110000; point++) {"
        " const char = String.fromCodePoint(point); if (escapeInvisible(char) !== char) each.push(point); }"
        "const texts = JSON.parse(fs.readFileSync(0, 'utf8'));"
        "console.log(JSON.stringify({each, texts: texts.map(escapeInvisible), counts: texts.map(countInvisible),"
        " unicode: process.versions.unicode, ignorable: each.filter((p) => /\\p{DI}/u.test(String.fromCodePoint(p)))}))"
    )
    (tmp_path / "all.mjs").write_text(script, "utf-8")
    ran = subprocess.run(
        [NODE, "all.mjs"],
        cwd=tmp_path,
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG,
    )
    page = json.loads(ran.stdout)
    chars = map(chr, range(sys.maxunicode + 1))
    assert page["each"] == [ord(char) for char in chars if escape_unseen(char) != char]
    assert page["texts"] == [escape_unseen(text) for text in TEXTS]
    assert page["counts"] == [count_unseen(text) for text in TEXTS]
    if tables.UNICODE_VERSION.startswith(page["unicode"]):
        assert set(page["ignorable"]) == points(tables.DEFAULT_IGNORABLE)
