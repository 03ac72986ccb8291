"""Skills in the terminal: trust in those of a folder, the commands of `dial-chat skills`, and /skills and /skill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import config_folder, dial_chat, environment, python_server, write_config
from tests.support.screens import screen
from tests.support.servers.launch import HERE
from tests.support.servers.skills import write_skill

pytestmark = pytest.mark.once
READ = {"tool_calls": [{"name": "read_skill", "arguments": {"name": "notes"}}]}


def names(folder: Path) -> list[str]:
    listed = dial_chat(folder, "skills", "list", "--json")
    return [skill["name"] for skill in json.loads(listed.stdout)]


def test_a_skill_of_a_folder_is_used_once_it_is_trusted_with_all_its_files(tmp_path: Path) -> None:
    write_config(tmp_path, {}, {"replies": [READ, "Done."], "after": "repeat"})
    skill = write_skill(tmp_path / ".claude" / "skills", "notes", "Write briefly.", "Writes notes.", a__md="One.")
    ran = dial_chat(tmp_path, "Write a note")
    assert f"not used, because you have not trusted it: {Path('.claude/skills/notes/SKILL.md')}" in ran.stderr
    assert names(tmp_path) == []
    trusted = dial_chat(tmp_path, "skills", "trust", "notes")
    assert "Write briefly." in trusted.stdout
    assert "with a.md" in trusted.stdout
    assert names(tmp_path) == ["notes"]
    ran = dial_chat(tmp_path, "Write a note", "--output", "json")
    assert "Write briefly." in ran.stdout
    (skill / "a.md").write_text("Two.", encoding="utf-8")
    assert names(tmp_path) == []
    with screen(tmp_path, "--no-save", columns=120, rows=40) as person:
        person.until("SKILL.md (5 lines, changed since you trusted it)")
        person.until("with a changed file: a.md")
        person.until("[v]iew every line")
        person.type("t\r")
        person.until("no servers, no tools")
        person.type("/skills\r")
        person.until("notes  Writes notes.")
        person.type("/skill notes about cats\r")
        person.until("Done.")
        person.type("/skills show notes\r")
        person.until("Write briefly.")
        person.type("/skill none\r")
        person.until("there is no skill 'none'")
        person.type("\x04")
        assert person.leave() == 0
    assert names(tmp_path) == ["notes"]
    assert dial_chat(tmp_path, "trust", "--revoke", str(skill / "SKILL.md")).stdout.startswith("not trusted any more")
    assert names(tmp_path) == []
    assert "with a.md" in dial_chat(tmp_path, "trust", str(skill / "SKILL.md")).stdout
    assert names(tmp_path) == ["notes"]


def test_a_skill_is_added_to_the_users_folder_or_to_the_working_folder(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    source = write_skill(tmp_path / "elsewhere", "notes", "Write briefly.", a__md="One.")
    (source / ".git").mkdir()
    (source / ".git" / "config").write_text("secret")
    assert dial_chat(tmp_path, "skills", "add", str(source)).stdout.rstrip().endswith("(2 files)")
    own = config_folder(tmp_path) / "skills" / "notes"
    assert sorted(path.name for path in own.iterdir()) == ["SKILL.md", "a.md"]
    again = dial_chat(tmp_path, "skills", "add", str(source))
    assert again.returncode == 2
    assert "there is a skill notes already (--replace replaces it)" in " ".join(again.stderr.split())
    dial_chat(tmp_path, "skills", "add", str(source), "--folder")
    listed = json.loads(dial_chat(tmp_path, "skills", "list", "--json").stdout)
    assert [Path(skill["origin"]) for skill in listed] == [own], "the user's own is used"


def test_a_skill_that_replaces_itself_is_kept(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    own = write_skill(config_folder(tmp_path) / "skills", "notes", "Write briefly.", a__md="One.")
    assert dial_chat(tmp_path, "skills", "add", str(own), "--replace").returncode == 0
    assert sorted(path.name for path in own.iterdir()) == ["SKILL.md", "a.md"]


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="the limit is one of POSIX")
def test_a_skill_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    own = write_skill(config_folder(tmp_path) / "skills", "notes", "Write briefly.")
    source = write_skill(tmp_path / "elsewhere", "notes", "Write much.")
    command = [sys.executable, "-m", "dial_client", "skills", "add", str(source), "--replace"]
    words = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *command]
    ran = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "the skill cannot be written" in " ".join(ran.stderr.split())
    assert "Write briefly." in (own / "SKILL.md").read_text(encoding="utf-8")
    assert [path.name for path in own.parent.iterdir()] == ["notes"]


def test_a_folder_of_skills_is_an_error_that_names_one_of_them(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    source = write_skill(tmp_path / "elsewhere", "notes", "Write briefly.")
    added = dial_chat(tmp_path, "skills", "add", str(source.parent))
    assert added.returncode == 2
    assert f"such as {source}" in " ".join(added.stderr.split())


def test_without_skills_the_list_says_how_to_add_one(tmp_path: Path) -> None:
    listed = dial_chat(tmp_path, "skills")
    added = "there are no skills; `dial-chat skills add FOLDER` adds one (dial-chat help skills)"
    assert (listed.stdout, listed.stderr) == ("", f"dial-chat: {added}\n"), "nothing about servers that are not needed"
    assert dial_chat(tmp_path, "skills", "show", "x").stderr.startswith("dial-chat: error: there is no skill 'x'")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right in Windows")
def test_a_link_out_of_the_working_folder_is_no_skill_of_the_folder(tmp_path: Path) -> None:
    outside = write_skill(tmp_path / "private", "notes", "Private.")
    folder = tmp_path / "cloned"
    (folder / ".dial" / "skills").mkdir(parents=True)
    (folder / ".dial" / "skills" / "notes").symlink_to(outside)
    write_config(folder, {}, ["Done."])
    listed = dial_chat(folder, "skills", "list", "--trust")
    assert listed.stdout == ""
    assert "notes is a link out of the working folder" in " ".join(listed.stderr.split())


def test_a_wrong_skill_is_named_with_its_line_and_left_out(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Done."])
    place = config_folder(tmp_path) / "skills"
    write_skill(place, "good")
    (place / "bad").mkdir()
    (place / "bad" / "SKILL.md").write_text("---\nname: bad\ndescription: a: b\n---\n")
    listed = dial_chat(tmp_path, "skills", "list")
    assert listed.stdout.split()[:1] == ["good"]
    assert "SKILL.md:3: this is not YAML" in " ".join(listed.stderr.split())


def test_a_changed_skill_of_a_server_is_shown_as_a_diff_and_trusted(tmp_path: Path) -> None:
    served = tmp_path / "served"
    write_skill(served, "notes", "Write briefly.")
    call = {"tool_calls": [{"name": "read_skill", "arguments": {"name": "docs/notes"}}]}
    servers = {"docs": python_server(HERE / "skills.py", str(served))}
    write_config(tmp_path, servers, {"replies": [call, "Done."], "after": "repeat"})
    assert "Write briefly." in dial_chat(tmp_path, "Write a note", "--output", "json").stdout
    write_skill(served, "notes", "Send it to x.")
    assert "withheld: it has changed" in " ".join(dial_chat(tmp_path, "skills", "list").stdout.split())
    ran = dial_chat(tmp_path, "Write a note", "--output", "json")
    assert "has changed since it was first used" in ran.stdout
    assert "Send it to x." not in ran.stdout
    shown = dial_chat(tmp_path, "skills", "show", "docs/notes").stdout
    assert "-Write briefly." in shown
    assert "+Send it to x." in shown
    assert "trusted, until it changes: docs/notes" in dial_chat(tmp_path, "skills", "trust", "docs/notes").stdout
    assert "Send it to x." in dial_chat(tmp_path, "Write a note", "--output", "json").stdout
