"""Images of tools and models: shown in the terminal if it can (kitty, iTerm2), else saved in a file.

The data is decoded and encoded again for the escape sequence, so that a server cannot put anything else into it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from dial_client.messages.message import Content, ImagePart

# The maximum size in bytes of an image that is sent to the terminal; a larger image is saved.
MAX_BYTES = 5_000_000
# The maximum width and height of an image in pixels.
MAX_SIDE = 8_000
MAX_ROWS = 15
MAX_COLUMNS = 60
# The maximum characters in one escape sequence of kitty.
CHUNK = 4096
_PNG = b"\x89PNG\r\n\x1a\n"
_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg"}


class ImageProtocol(Enum):
    """The protocol by which a terminal shows images."""

    KITTY = "kitty"
    ITERM = "iterm"


def find_protocol(environment: Mapping[str, str]) -> ImageProtocol | None:
    """Return the protocol of the terminal that the environment names; None if it has none, or in tmux or screen."""
    if environment.get("TMUX") or environment.get("STY"):
        return None
    program = environment.get("TERM_PROGRAM", "")
    if "kitty" in environment.get("TERM", "") or program == "ghostty" or environment.get("KITTY_WINDOW_ID"):
        return ImageProtocol.KITTY
    if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
        return ImageProtocol.ITERM
    return None


def find_images(content: Content) -> Iterator[ImagePart]:
    """Yield the images of a content."""
    if not isinstance(content, str):
        yield from (part for part in content if isinstance(part, ImagePart))


def draw(image: ImagePart, protocol: ImageProtocol | None, columns: int) -> str | None:
    """Return the escape sequences that show an image in the terminal; None if it cannot be shown."""
    data = _decode(image)
    if protocol is None or data is None or len(data) > MAX_BYTES:
        return None
    columns = min(columns - 1, MAX_COLUMNS)
    size = f"width={columns}"
    if data.startswith(_PNG):
        width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
        if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
            return None
        is_tall = height * columns > 2 * width * MAX_ROWS  # a row is about as high as two columns are wide
        if protocol is ImageProtocol.KITTY:
            return _encode_for_kitty(data, f"r={MAX_ROWS}" if is_tall else f"c={columns}")
        size = f"height={MAX_ROWS}" if is_tall else size
    elif protocol is ImageProtocol.KITTY or not data.startswith((b"\xff\xd8\xff", b"GIF87a", b"GIF89a")):
        return None
    text = base64.b64encode(data).decode()
    return f"\x1b]1337;File=inline=1;size={len(data)};{size};preserveAspectRatio=1:{text}\x07"


def find_image_folder() -> Path:
    """Return the folder for images that the terminal cannot show."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("dial-client"), "images")


def save(image: ImagePart, folder: Path) -> Path | None:
    """Save an image under a hash of its bytes, and return the path; None if it is not valid base64.

    Raises:
        OSError: The file cannot be written.
    """
    data = _decode(image)
    if data is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(data).hexdigest()[:16]
    path = folder / f"{name}.{_ENDINGS.get(image.mime_type, 'bin')}"
    path.write_bytes(data)
    return path


def _decode(image: ImagePart) -> bytes | None:
    try:
        return base64.b64decode(image.data, validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _encode_for_kitty(data: bytes, size: str) -> str:
    text = base64.b64encode(data).decode()
    chunks = [text[index : index + CHUNK] for index in range(0, len(text), CHUNK)]
    last = len(chunks) - 1
    first = f"a=T,f=100,q=2,{size},"
    return "".join(
        f"\x1b_G{'' if index else first}m={int(index < last)};{chunk}\x1b\\" for index, chunk in enumerate(chunks)
    )
