"""Paths in arguments: an allowed path is inside its folder in every reading; no spelling of a path evades a deny."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    MAX_PATH,
    ProposedCall,
    ServerSettings,
    ToolSpec,
    Transport,
    is_rule_met,
    lies_within,
    load_policy,
    may_reach,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="paths as POSIX writes them")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with ``project`` (allowed), ``keys`` (denied), and links between the two."""
    for name in ("project/src", "keys/deep", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "keys" / "id").write_text("secret")
    (tmp_path / "project" / "out").symlink_to(tmp_path / "keys")
    (tmp_path / "elsewhere" / "in").symlink_to(tmp_path / "project")
    (tmp_path / "project" / "loop").symlink_to(tmp_path / "project" / "loop")
    return tmp_path


INSIDE = [
    "{home}/project/a",
    "{home}/project",
    "{home}/project/src/../b",
    "a.txt",
    "src/a",
    "./a",
    "file://{home}/project/a%20b",
]


@posix
@pytest.mark.parametrize("text", INSIDE)
def test_a_path_inside_the_folder_is_within_the_folder(home: Path, text: str) -> None:
    path = text.format(home=home)
    assert lies_within(path, [str(home / "project")], [str(home / "project")])
    assert may_reach(path, [str(home / "project")], [str(home / "project")])


ELSEWHERE = [
    "{home}/project/../keys/id",
    "../keys/id",
    "{home}/project/out/id",
    "out/id",
    "out/../a",
    "{home}/worker/a",
    "file://{home}/project/../keys/id",
    "file://{home}/project/%2e%2e/keys/id",
    "file://{home}/project/%252e%252e/keys/id",
    "file://elsewhere.example{home}/project/a",
    "{home}/project/%2e%2e/keys/id",
    "..\\keys\\id",
    "~/id",
    "$HOME/id",
    " /etc/passwd",
    '"/etc/passwd"',
    "http://thief.example/a",
    "thief.example:a",
    "jar:file:{home}/project/a",
    "/proc/self/cwd/a",
    "{home}/elsewhere/in/a",
    "nul\0",
    "",
    "  ",
    "a" * (MAX_PATH + 1),
]


@posix
@pytest.mark.parametrize("text", ELSEWHERE, ids=[repr(text)[:40] for text in ELSEWHERE])
def test_a_text_that_may_denote_an_outside_path_is_not_within_the_folder(home: Path, text: str) -> None:
    assert not lies_within(text.format(home=home), [str(home / "project")], [str(home / "project")])


@posix
def test_every_text_of_a_list_must_be_within_the_folder(home: Path) -> None:
    folder, bases = [str(home / "project")], [str(home / "project")]
    assert lies_within(["a", "b"], folder, bases)
    assert lies_within([{"a": "b"}], folder, bases)
    for value in (["a", "/etc/passwd"], [], {}, 5, None, True, ["a", 5], {"/etc/passwd": "a"}):
        assert not lies_within(value, folder, bases), value


def test_a_relative_path_is_within_no_folder_if_the_folder_of_the_server_is_unknown(home: Path) -> None:
    assert not lies_within("a", [str(home)], [])


@posix
def test_an_allowed_folder_may_be_a_symbolic_link(home: Path) -> None:
    assert lies_within(str(home / "elsewhere" / "in" / "a"), [str(home / "elsewhere" / "in")], [])
    assert lies_within(str(home / "project" / "a"), [str(home / "elsewhere" / "in")], [])


SPELLINGS = [
    "{home}/keys/id",
    "{home}/keys",
    "{home}//keys/id",
    "//{home}/keys/id",
    "{home}/./project/../keys/id",
    "{home}/nothing/../keys/id",
    "{home}/project/out/id",
    "project/out/id",
    "../{name}/keys/id",
    "keys/not/yet/there",
    "{home}/KEYS/id",
    "file://{home}/keys/id",
    "FILE:{home}/keys/id",
    "file://localhost{home}/keys/id",
    "file:///{home}/project/..%2fkeys/id",
    "file://{home}/%6beys/id",
    "{home}/%6beys/id",
    "{home}/%256beys/id",
    "view-source:file://{home}/keys/id",
    "{home}\\keys\\id",
    " {home}/keys/id ",
    "'{home}/keys/id'",
    "{home}/" + "a/../" * 4000 + "keys/id",
    "/" * 9000 + "{home}/keys/id",
    "{home}/keys/id\0.txt",
    "~/keys/id",
    "$HOME/keys/id",
    "${{HOME}}/keys/id",
]


@posix
@pytest.mark.parametrize("text", SPELLINGS, ids=[text[:50] for text in SPELLINGS])
def test_no_spelling_of_a_path_evades_a_deny(home: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    path = text.format(home=home, name=home.name)
    assert may_reach(path, [str(home / "keys")], [str(home)])
    assert may_reach({"files": [{"name": path}]}, [str(home / "keys")], [str(home)])
    assert may_reach({path: 1}, [str(home / "keys")], [str(home)])


@posix
def test_a_deny_applies_to_links_and_unicode_forms_of_a_folder(home: Path) -> None:
    denied_by_link = [str(home / "project" / "out")]
    assert may_reach(str(home / "keys" / "id"), denied_by_link, [])
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert may_reach(f"/x/{decomposed}/a", [f"/x/{composed}"], [])


@posix
def test_a_deny_follows_symbolic_links_in_a_path(home: Path) -> None:
    link = home / "project" / "hidden"
    link.symlink_to(home / "keys" / "deep")
    assert may_reach("project/hidden/x", [str(home / "keys")], [str(home)])
    assert may_reach("/proc/self/cwd/keys/id" if sys.platform == "linux" else str(home / "keys"), ["/"], [])


HARMLESS = ["{home}/project/a", "keysmith", "{home}/keysmith/id", "a text that names keys/ nowhere: really", "5", ""]


@posix
@pytest.mark.parametrize("text", HARMLESS)
def test_a_path_outside_the_denied_folder_is_not_denied(home: Path, text: str) -> None:
    assert not may_reach(text.format(home=home), [str(home / "keys")], [str(home)])
    assert not may_reach(5, [str(home / "keys")], [str(home)])


GLOBS: list[tuple[str, str, bool]] = [
    ("**/.env", "{home}/project/.env", True),
    ("**/.env", "{home}/project/.ENV", True),
    ("**/.env", "{home}/project/.env/deeper", True),
    ("**/.env", "{home}/project/env", False),
    ("**/*.pem", "{home}/x/y/z.pem", True),
    ("{home}/*/deep", "{home}/keys/deep/x", True),
    ("{home}/*/deep", "{home}/keys/x/deep", False),
    ("{home}/**/deep", "{home}/keys/x/deep", True),
    ("{home}/k[e]ys", "{home}/keys/id", True),
]


@posix
@pytest.mark.parametrize(("pattern", "text", "reaches"), GLOBS)
def test_folders_may_be_glob_patterns(home: Path, pattern: str, text: str, reaches: bool) -> None:
    assert may_reach(text.format(home=home), [pattern.format(home=home)], [str(home)]) == reaches


@posix
def test_the_base_of_relative_paths_depends_on_the_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "elsewhere")
    entry = ServerSettings("files", Transport.STDIO, "x", cwd=str(home / "project"))
    allow, deny = load_policy(
        [
            {"allow": "*/*", "paths": {"path": str(home / "project")}},
            {"deny": "*/*", "paths": {"*": str(home / "keys")}},
        ]
    )

    def call(path: Any, settings: ServerSettings | None) -> ProposedCall:
        return ProposedCall(ToolSpec("t", "", {}, "files", "t"), {"path": path}, settings)

    assert is_rule_met(allow, call("a", entry))
    assert not is_rule_met(allow, call("a", None)), "the folder of the host is a different folder"
    assert is_rule_met(allow, call(str(home / "project" / "a"), None))
    remote = ServerSettings("files", Transport.HTTP, url="https://files.example")
    assert not is_rule_met(allow, call("a", remote))
    assert is_rule_met(deny, call("../keys/id", entry))
    assert is_rule_met(deny, call("../keys/id", remote))
    rooted = replace(entry, cwd="/", roots=(str(home), "file:///nowhere"))
    assert is_rule_met(deny, call("keys/id", rooted)), "a server may resolve relative paths in its roots"


@posix
def test_a_long_text_is_checked_in_linear_time(home: Path) -> None:
    """A quadratic algorithm would take minutes for these texts."""
    for piece in ("$HOME", "file:", "%25", "a/../", "../", "x\n", "~"):
        may_reach(piece * (1_000_000 // len(piece)), [str(home / "keys")], [str(home)])
        may_reach(piece * (MAX_PATH // len(piece)), [str(home / "keys")], [str(home)])
    assert os.path.isdir(home)  # noqa: PTH112


@posix
def test_rules_are_decided_after_the_current_folder_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (rule,) = load_policy([{"allow": "*", "paths": {"path": "/"}}], folder="/")
    calls = [ProposedCall(ToolSpec("t", "", {}, "files", "t"), {"path": path}) for path in ("a", "/a")]
    assert [is_rule_met(rule, call) for call in calls] == [False, True]
