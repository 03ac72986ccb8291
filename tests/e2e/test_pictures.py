"""The pictures of the terminal and of the page can be drawn again."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.pictures import page_scenes
from tests.pictures.__main__ import draw_pictures
from tests.pictures.animation import LAST, LONGEST, draw_animation, list_frames
from tests.pictures.scenes import SCENES

pytestmark = pytest.mark.once


def test_each_picture_of_the_docs_has_a_scene() -> None:
    pictures = (Path(__file__).parents[2] / "docs" / "terminal").glob("*.svg")
    assert {path.stem for path in pictures} >= set(SCENES)


def test_each_picture_of_the_page_has_a_scene() -> None:
    pictures = {path.stem for path in (Path(__file__).parents[2] / "docs" / "page").iterdir()}
    assert pictures
    assert pictures <= set(page_scenes.SCENES)


def test_a_picture_shows_the_screen_of_a_real_run(tmp_path: Path) -> None:
    draw_pictures(tmp_path, ["approval"])
    svg = (tmp_path / "approval.svg").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]+>", "", svg)).replace("\xa0", " ")
    assert "write_file · files" in text
    assert "+ - sandals, because it will be 東京-warm" in text
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", ""), "nothing is loaded from another host"


def test_an_animation_shows_every_screen_of_a_run() -> None:
    written = [(0.0, b"> a"), (0.5, b"b"), (9.5, b"\r\n\x1b[1mdone & <well>\x1b[0m"), (9.51, b".")]
    frames = list_frames(written, columns=20, rows=3)
    assert [frame.seconds for frame in frames] == [0.5, LONGEST, LAST]
    svg = draw_animation(frames, columns=20, rows=3, title="a run")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert re.findall(r">([^<>]+)</text>", svg) == ["&gt;", "a", "&gt;", "ab", "done", "&amp;", "&lt;well&gt;", "."]
    assert svg.count("translateX") == len(frames) + 2
