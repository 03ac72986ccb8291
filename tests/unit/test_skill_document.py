"""The file SKILL.md: its front matter, its errors with file and line, and its comparison with a server's list."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import ConfigError, is_same, parse_skill

FULL = """---
name: pdf-forms
description: >
  Fills forms.
  Use for PDF files.
license: MIT
compatibility: needs qpdf
allowed-tools: Bash(git *) Read, files/open
metadata:
  version: 1.0
  on: yes
---
# Forms

Open the file.
"""


def test_a_skill_has_its_fields_and_its_body() -> None:
    skill = parse_skill(FULL.encode(), "SKILL.md")
    assert (skill.name, skill.description) == ("pdf-forms", "Fills forms. Use for PDF files.")
    assert (skill.license, skill.compatibility) == ("MIT", "needs qpdf")
    assert skill.allowed_tools == ("Bash(git *)", "Read", "files/open")
    assert skill.metadata == {"version": "1.0", "on": "yes"}
    assert skill.body == "# Forms\n\nOpen the file."


def test_a_byte_order_mark_and_lines_of_windows_are_read() -> None:
    skill = parse_skill(b"\xef\xbb\xbf" + FULL.replace("\n", "\r\n").encode(), "SKILL.md")
    assert skill.name == "pdf-forms"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# No front matter", "s/SKILL.md:1: expected front matter"),
        ("---\nname: x\n", "s/SKILL.md:1: expected front matter"),
        ("---\n---\n", "s/SKILL.md:2: expected front matter with name and description"),
        ("---\n- name\n---\n", "s/SKILL.md:2: expected front matter with name and description"),
        ("---\nname: x\n---\n", "s/SKILL.md:2: description is missing"),
        ("---\nname: x\ndescripton: y\n---\n", "did you mean description by 'descripton'?"),
        ("---\nname: x\ndescription:\n---\n", "s/SKILL.md:3: description is empty"),
        ("---\ndescription: y\nname: PDF\n---\n", "s/SKILL.md:3: 'PDF' is not the name of a skill"),
        ("---\nname: a--b\ndescription: y\n---\n", "is not the name of a skill"),
        ("---\nname: x\ndescription: [y]\n---\n", "s/SKILL.md:3: expected description as a text, found a sequence"),
        (f"---\nname: x\ndescription: {'y' * 1025}\n---\n", "s/SKILL.md:3: description has 1,025 characters"),
        ("---\nname: x\ndescription: Use: it\n---\n", "put a value with a colon in quotes"),
        ("---\nname: x\nname: y\ndescription: z\n---\n", "s/SKILL.md:3: the key 'name' is there twice"),
        ("---\nname: &a x\ndescription: *a\n---\n", "front matter has no anchors and no aliases"),
        ("---\nname: x\ndescription: !!python/object:os.system y\n---\n", "s/SKILL.md:3: front matter has no tags"),
        ("---\nname: x\ndescription: y\n<<: {a: b}\n---\n", "s/SKILL.md:4: expected a key that is a text"),
        (f"---\n{'[' * 10000}\n---\n", "front matter is nested too deeply"),
        (f"---\nname: x\ndescription: y\nz: {'[' * 30}{']' * 30}\n---\n", "front matter is nested too deeply"),
        (f"---\nname: x # {'y' * 20000}\n---\n", "front matter has at most 16,384 bytes"),
        ("---\nname: x\ndescription: y\nmetadata: z\n---\n", "s/SKILL.md:4: expected metadata as keys with texts"),
    ],
)
def test_an_error_names_the_file_the_line_and_what_was_expected(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_skill(text.encode(), "s/SKILL.md")
    assert error in str(raised.value)


def test_bytes_that_are_no_text_are_refused_with_their_line() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_skill(b"---\nname: \xff\n---\n", "SKILL.md")
    assert str(raised.value) == "SKILL.md:2: this is not text in UTF-8"


LISTED: dict[str, Any] = {
    "name": "pdf-forms",
    "description": "Fills forms. Use for PDF files.\n",
    "license": "MIT",
    "compatibility": "needs qpdf",
    "allowed-tools": "Bash(git *) Read, files/open",
    "metadata": {"version": 1.0, "on": "yes"},
}


@pytest.mark.parametrize("metadata", [{"version": 1, "on": True}, {"version": "1.0", "on": "yes"}])
def test_front_matter_is_that_of_a_list_in_either_version_of_yaml(metadata: dict[str, Any]) -> None:
    node = parse_skill(FULL.encode(), "SKILL.md").front_matter
    spelled = {"version": metadata["version"], "on": metadata["on"]}
    # A key is text in every version of YAML here: `on` is not read as true.
    assert is_same(node, LISTED | {"metadata": spelled})


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Steals forms."},
        {"allowed-tools": "*"},
        {"hooks": {}},
        {"metadata": {"version": 2, "on": "yes"}},
        {"metadata": {"version": 1, "on": False}},
        {"license": None},
        {"compatibility": ["needs qpdf"]},
    ],
)
def test_front_matter_that_differs_from_the_list_is_found(change: dict[str, Any]) -> None:
    assert not is_same(parse_skill(FULL.encode(), "SKILL.md").front_matter, LISTED | change)


def test_a_field_that_the_list_leaves_out_is_found() -> None:
    node = parse_skill(FULL.encode(), "SKILL.md").front_matter
    assert not is_same(node, {name: value for name, value in LISTED.items() if name != "allowed-tools"})
