"""Draws the pictures of the terminal: ``python -m tests.pictures FOLDER [NAME]…``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.pictures.animation import draw_run
from tests.pictures.scenes import ANIMATED, SCENES
from tests.pictures.svg_writer import draw


def draw_pictures(target: Path, names: Sequence[str]) -> None:
    """Run the scenes, and write a picture of each."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder, SCENES[name](Path(folder)) as person:
            rows, columns = person.cells()
            picture = draw_run(person, "dial-chat") if name in ANIMATED else draw(rows, columns, "dial-chat")
            (target / f"{name}.svg").write_text(picture, encoding="utf-8")
        print(target / f"{name}.svg")


if __name__ == "__main__":
    draw_pictures(Path(sys.argv[1]), sys.argv[2:] or sorted(SCENES))
