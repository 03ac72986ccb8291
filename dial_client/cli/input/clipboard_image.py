"""The image in the clipboard, which a program of the desktop returns, saved as a file that a message can mention."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from dial_client.runtime.private_files import write_private

# Timeout of a clipboard program in seconds.
TIMEOUT = 5.0
# The most bytes of an image; `file_mentions` attaches no larger one.
MAX_BYTES = 5_000_000
_ENDINGS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpg"}
# AppleScript prints the bytes in hexadecimal digits: «data PNGf89504E47…».
_HEX = re.compile(rb"data PNGf([0-9A-F]+)")
_POWERSHELL = (
    "Add-Type -AssemblyName System.Windows.Forms,System.Drawing;"
    "$image=[Windows.Forms.Clipboard]::GetImage();"
    "if($image){$bytes=New-Object IO.MemoryStream;"
    "$image.Save($bytes,[Drawing.Imaging.ImageFormat]::Png);[Convert]::ToBase64String($bytes.ToArray())}"
)


def save_clipboard_image(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Save the image in the clipboard in the cache folder, readable by its owner only, and return its path.

    Returns None if there is no image, or no program that returns one. Takes at most `TIMEOUT` for each program.

    Raises:
        OSError: The file cannot be written.
        ValueError: The image is larger than `MAX_BYTES`.
    """
    import platformdirs

    for command in _find_commands(environment):
        data = _decode(_run(command))
        ending = next((ending for start, ending in _ENDINGS.items() if data.startswith(start)), "")
        if not ending:
            continue
        if len(data) > MAX_BYTES:
            raise ValueError(f"the image in the clipboard has more than {MAX_BYTES // 1_000_000} MB")
        name = f"clipboard-{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        path = Path(platformdirs.user_cache_dir("dial-client"), "images", name)
        write_private(path, data)
        return path
    return None


def _find_commands(environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the commands that may return an image here, the most likely first."""
    if environment.get("WAYLAND_DISPLAY"):
        yield ["wl-paste", "--type", "image/png"]
    if environment.get("DISPLAY"):
        yield ["xclip", "-selection", "clipboard", "-target", "image/png", "-out"]
    yield ["osascript", "-e", "the clipboard as «class PNGf»"]
    yield ["powershell.exe", "-NoProfile", "-NonInteractive", "-STA", "-Command", _POWERSHELL]


def _run(command: list[str]) -> bytes:
    """Return what a program prints; nothing if it does not exist, fails or takes too long."""
    program = shutil.which(command[0])
    if program is None:
        return b""
    try:
        ran = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return ran.stdout if ran.returncode == 0 else b""


def _decode(printed: bytes) -> bytes:
    """Return the bytes of an image: as printed, or from the hexadecimal digits or base64 of a program."""
    try:
        if found := _HEX.search(printed[:200]):
            return binascii.unhexlify(printed[found.start(1) :].strip().rstrip("»".encode()))
        is_image = printed.startswith(tuple(_ENDINGS))
        return printed if is_image else base64.b64decode(printed.strip(), validate=True)
    except ValueError:
        return b""
