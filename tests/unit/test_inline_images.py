"""Images are drawn in a terminal that has an image protocol, and saved as files otherwise."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from tests.inner import CHUNK, ImagePart, ImageProtocol, draw, find_protocol, save

KITTY, ITERM = ImageProtocol.KITTY, ImageProtocol.ITERM


def png(width: int, height: int, size: int = 0) -> ImagePart:
    """Return an image with the header of a PNG; the data after the header is not read."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4) + height.to_bytes(4)
    return ImagePart(base64.b64encode(head + bytes(size)).decode(), "image/png")


def test_the_environment_determines_the_image_protocol() -> None:
    for environment, protocol in (
        ({"TERM": "xterm-kitty"}, KITTY),
        ({"TERM_PROGRAM": "ghostty"}, KITTY),
        ({"TERM_PROGRAM": "iTerm.app"}, ITERM),
        ({"TERM_PROGRAM": "WezTerm"}, ITERM),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux,1,0"}, None),
        ({"TERM": "xterm-256color"}, None),
    ):
        assert find_protocol(environment) is protocol


def test_a_png_is_drawn_within_its_columns_and_rows() -> None:
    wide, tall = draw(png(400, 100), KITTY, 81), draw(png(100, 400), KITTY, 81)
    assert wide is not None
    assert tall is not None
    assert wide.startswith("\x1b_Ga=T,f=100,q=2,c=60,m=0;")
    assert tall.startswith("\x1b_Ga=T,f=100,q=2,r=15,m=0;")
    assert "width=60;" in (draw(png(400, 100), ITERM, 81) or "")
    assert "height=15;" in (draw(png(100, 400), ITERM, 81) or "")


def test_a_large_image_is_sent_in_chunks() -> None:
    image = png(400, 100, 20_000)
    drawn = draw(image, KITTY, 81) or ""
    chunks = re.findall(r"\x1b_G([^;]*);([A-Za-z0-9+/=]*)\x1b\\", drawn)
    assert "".join(data for _, data in chunks) == image.data
    assert all(len(data) <= CHUNK for _, data in chunks)
    assert [keys[-3:] for keys, _ in chunks] == ["m=1"] * (len(chunks) - 1) + ["m=0"]


def test_an_invalid_or_too_large_image_is_not_sent_to_the_terminal(tmp_path: Path) -> None:
    evil = ImagePart("AAAA\x1b\\\x1b]0;owned\x07", "image/png")
    for image in (evil, ImagePart("", "image/png"), png(100_000, 5), png(0, 0), png(9, 9, 5_000_001)):
        assert draw(image, KITTY, 80) is None
        assert draw(image, ITERM, 80) is None
    assert draw(png(9, 9), None, 80) is None
    assert save(evil, tmp_path) is None


def test_an_image_is_saved_under_a_generated_name(tmp_path: Path) -> None:
    image = png(9, 9)
    path = save(image, tmp_path / "images")
    assert path is not None
    assert re.fullmatch(r"[0-9a-f]{16}\.png", path.name)
    assert base64.b64encode(path.read_bytes()).decode() == image.data
    escaped = save(ImagePart(image.data, "../../x"), tmp_path)
    assert escaped is not None
    assert escaped.suffix == ".bin"
