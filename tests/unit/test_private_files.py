"""Files that only their owner can read."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.inner import write_private


def test_a_file_is_replaced_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    file = tmp_path / "above" / "folder" / "file.json"
    write_private(file, b"first, and longer")
    write_private(file, b"second")

    assert file.read_bytes() == b"second"
    assert list(file.parent.iterdir()) == [file]
    if sys.platform != "win32":
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent.parent, file.parent, file)]
        assert modes == [0o700, 0o700, 0o600]


def test_a_failed_replacement_leaves_no_temporary_file(tmp_path: Path) -> None:
    occupied = tmp_path / "file.json"
    occupied.mkdir()

    with pytest.raises(OSError, match=r"file\.json"):
        write_private(occupied, b"data")
    assert list(tmp_path.iterdir()) == [occupied]
