"""The pictures of the terminal can be drawn anew."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tests.pictures.__main__ import draw_pictures
from tests.pictures.scenes import SCENES

pytestmark = pytest.mark.once


def test_each_picture_of_the_docs_has_a_scene() -> None:
    pictures = (Path(__file__).parents[2] / "docs" / "terminal").glob("*.svg")
    assert {path.stem for path in pictures} >= set(SCENES)


def test_a_picture_shows_the_screen_of_a_real_run(tmp_path: Path) -> None:
    draw_pictures(tmp_path, ["approval"])
    svg = (tmp_path / "approval.svg").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]+>", "", svg)).replace("\xa0", " ")
    assert "files wants to run write_file" in text
    assert "+- sandals, because it will be 東京-warm" in text
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", ""), "nothing is loaded from another host"
