"""Files and folders that a person mentions (``@path``)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.inner import MESSAGE_MAX_TEXT as MAX_TEXT
from tests.inner import (
    ConfigError,
    FileMention,
    FilePart,
    ImagePart,
    TextPart,
    file_mentions,
    find_file_mentions,
    propose_local_completions,
    read_files,
)
from tests.inner import file_mentions_find_problem as find_problem

PNG = b"\x89PNG\r\n\x1a\nrest"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lib").mkdir()
    for name in ("README.md", "lib/my-notes.md", "lib/two words.txt", "lib/.hidden", "odd.md."):
        (tmp_path / name).write_text(f"content of {name}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_words_that_name_existing_files_are_mentions(folder: Path) -> None:
    cases = {
        "see @README.md, please": ["README.md"],
        "(@README.md)": ["README.md"],
        "@odd.md.": ["odd.md."],
        "@lib/ and @README.md and @README.md": ["lib/", "README.md"],
        '@"lib/two words.txt".': ["lib/two words.txt"],
        f"@{folder}/README.md": [f"{folder}/README.md"],
        "mail ada@README.md": [],
        "@dataclass of @types/node and @ alone": [],
        "@docs:README.md": [],
        "@\0 @'": [],
    }
    found = {text: [mention.written for mention in find_file_mentions(text, ["docs"])] for text in cases}
    assert found == cases


@pytest.mark.skipif(sys.platform == "win32", reason="a backslash separates folders there")
def test_a_space_may_be_escaped(folder: Path) -> None:
    assert find_file_mentions("@lib/two\\ words.txt", []) == [FileMention("lib/two words.txt")]


def test_a_mention_written_as_a_path_must_name_an_existing_file(folder: Path) -> None:
    cases = {
        "@./nothing": "there is no file ./nothing",
        "@/nothing/at/all": "there is no file /nothing/at/all",
        "@~/nothing-here": "there is no file ~/nothing-here",
        "@'no file'": "there is no file no file",
        "@READNE.md": "there is no file READNE.md: did you mean @README.md?",
        "@lib/my-note.md": "there is no file lib/my-note.md: did you mean @lib/my-notes.md?",
        " ".join(
            f"@./{number}" for number in range(21)
        ): "21 files are mentioned: at most 20 can be attached to a message",
        "@README.md": "",
    }
    assert {text: find_problem(find_file_mentions(text, [])) for text in cases} == cases


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes of this kind")
def test_a_pipe_or_a_device_is_never_read(folder: Path) -> None:
    os.mkfifo("pipe")
    for name in ("pipe", "/dev/zero"):
        assert find_problem(find_file_mentions(f"@{name}", [])) == f"@{name} is neither a file nor a folder"


def parts_of(name: str, content: bytes) -> list[object]:
    Path(name).write_bytes(content)
    return list(read_files([FileMention(name)]))


def test_each_type_of_file_becomes_a_message_part(folder: Path) -> None:
    assert parts_of("a", PNG) == [ImagePart("iVBORw0KGgpyZXN0", "image/png")]
    assert parts_of("b.pdf", b"%PDF-1.7") == [FilePart("JVBERi0xLjc=", "application/pdf", "b.pdf")]
    (text,) = parts_of("c", "\ufeffä\r\n\x1b[2Jb".encode())
    assert text == TextPart("[file c; the user attached it]\nä\nb\n[end of file]", foreign=True)
    (wide,) = parts_of("d", "ä".encode("utf-16"))
    assert isinstance(wide, TextPart) and "\nä\n" in wide.text
    (listing,) = read_files([FileMention("lib")])
    assert isinstance(listing, TextPart)
    assert listing.text.splitlines()[1:-1] == [".hidden", "my-notes.md", "two words.txt"]


def test_a_file_that_is_too_large_or_of_an_unsupported_type_is_refused(folder: Path) -> None:
    cases = {
        "zip": (b"PK\x03\x04\0\0", "@zip has a type that is not supported: text, PNG, JPEG, GIF and WebP images"),
        "log": (b"x" * (MAX_TEXT + 1), "@log is too large (256 kB): a text file may have at most 256 kB"),
        "png": (PNG + bytes(file_mentions.MAX_IMAGE), "@png is too large (5.0 MB): an image may have at most 5 MB"),
        "pdf": (
            b"%PDF-" + bytes(file_mentions.MAX_DOCUMENT),
            "@pdf is too large (15.0 MB): a PDF document may have at most 15 MB",
        ),
    }
    for name, (content, problem) in cases.items():
        with pytest.raises(ConfigError) as refused:
            parts_of(name, content)
        assert str(refused.value).startswith(problem)
    with pytest.raises(ConfigError, match="larger than 20 MB together"):
        parts_of("b", b"%PDF-" + bytes(11_000_000))
        read_files([FileMention("b"), FileMention("b")])


def completed(text: str) -> list[str]:
    found = propose_local_completions(
        text, dict.fromkeys(["/talk", "/tools", "/retalk", "/to"], ""), {"/talk": lambda: {"more": "", "less": ""}}
    )
    return [text[: len(text) - proposal.replaced] + proposal.text for proposal in found]


def test_tab_completes_paths_commands_and_their_arguments(folder: Path) -> None:
    cases = {
        "/t": ["/talk", "/tools", "/to"],
        "/tk": ["/talk", "/retalk"],
        "/TAL": ["/talk"],
        "/alk": ["/talk", "/retalk"],
        "/k": [],
        "/to": ["/tools"],
        "/x": [],
        "/talk ": ["/talk more", "/talk less"],
        "/talk m": ["/talk more"],
        "see @REA": ["see @README.md"],
        "see @not": ["see @lib/my-notes.md"],
        "see @li": ["see @lib/"],
        "see @lib/t": ['see @"lib/two words.txt"'],
        'see @"lib/t': ['see @"lib/two words.txt"'],
        "see @lib/.": ["see @lib/.hidden"],
        "see @README.md and": [],
        "see @nowhere/x": [],
    }
    assert {text: completed(text) for text in cases} == cases
