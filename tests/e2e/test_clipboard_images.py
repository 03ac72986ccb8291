"""Ctrl-V attaches the image in the clipboard, which a program of the desktop returns."""

from __future__ import annotations

import os
from base64 import b64encode
from pathlib import Path

import pytest

from tests.inner import save_clipboard_image
from tests.support.program import write_config
from tests.support.screens import screen

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


def write_program(folder: Path, name: str, output: bytes) -> str:
    """Write a program that prints this, and return the search path that finds it first."""
    (folder / "output").write_bytes(output)
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\ncat {folder / 'output'}\n", encoding="utf-8")
    program.chmod(0o755)
    return os.pathsep.join([str(program.parent), os.environ["PATH"]])


@pytest.mark.once
def test_ctrl_v_attaches_the_image_in_the_clipboard(tmp_path: Path) -> None:
    write_config(tmp_path, {}, {"replies": ["A cat."], "after": "repeat"})
    path = write_program(tmp_path, "wl-paste", PNG)
    options = ("--record", "talk.jsonl")
    with screen(tmp_path, *options, columns=200, PATH=path, WAYLAND_DISPLAY="wayland-0", DISPLAY="") as person:
        person.until("no servers, no tools")
        person.type("What is this? \x16")
        person.until("clipboard-")
        person.type("\r")
        person.until("A cat.")
        write_program(tmp_path, "wl-paste", b"no image")
        person.type("\x16")
        person.until("there is no image in the clipboard")
        person.type("\x04")
        assert person.leave() == 0
    assert b64encode(PNG).decode() in (tmp_path / "talk.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("xclip", PNG),
        ("osascript", "«data PNGf".encode() + PNG.hex().upper().encode() + "»\n".encode()),
        ("powershell.exe", b64encode(PNG) + b"\r\n"),
    ],
)
def test_each_program_of_a_clipboard_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, output: bytes
) -> None:
    monkeypatch.setenv("PATH", write_program(tmp_path, name, output))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    saved = save_clipboard_image({"DISPLAY": ":0"})
    assert saved is not None
    assert saved.read_bytes() == PNG
    assert saved.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("PATH", write_program(tmp_path, name, b"\x89PNG\r\n\x1a\n" + bytes(6_000_000)))
    if name == "xclip":
        with pytest.raises(ValueError, match="more than 5 MB"):
            save_clipboard_image({"DISPLAY": ":0"})
