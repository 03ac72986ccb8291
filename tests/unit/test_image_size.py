"""The size of an image, read from its header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import find_image_size
from tests.support.images import encode, gif, jpeg, png, webp


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(png(300, 9000), id="PNG"),
        pytest.param(jpeg(300, 9000), id="JPEG"),
        pytest.param(jpeg(300, 9000, metadata=40), id="JPEG with 2.6 MB of metadata"),
        pytest.param(gif(300, 9000), id="GIF"),
        pytest.param(webp(300, 9000), id="lossy WebP"),
        pytest.param(webp(300, 9000, b"VP8L"), id="lossless WebP"),
        pytest.param(webp(300, 9000, b"VP8X"), id="extended WebP"),
    ],
)
def test_the_header_has_the_size(image: bytes) -> None:
    assert find_image_size(encode(image)) == (300, 9000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10'/>",
        png()[:20],
        png(0, 5),
        b"\x89PNG\r\n\x1a\n" + bytes(40),
        jpeg()[:8],
        b"\xff\xd8\xff\xd9",
        gif()[:7],
        webp()[:24],
        webp()[:12] + b"WHAT" + bytes(30),
    ],
)
def test_what_is_no_image_has_no_size(data: bytes) -> None:
    assert find_image_size(encode(data)) is None


@given(st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF1234WEBP"]), st.binary())
def test_any_bytes_have_a_size_or_none(begin: bytes, rest: bytes) -> None:
    size = find_image_size(encode(begin + rest))

    assert size is None or min(size) > 0
