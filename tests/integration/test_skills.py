"""Skills in folders: what the model reads of them, and the limits of what it can read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dial_client import DialClient, Limits, Turn
from dial_client.testing import ScriptedProvider
from tests.inner import ApprovalPolicy, ConfigError, Failure, SkillFolder, configuration, hash_files
from tests.support.servers.skills import write_skill

pytestmark = pytest.mark.anyio
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="links need a right in Windows")


def reads(**arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "read_skill", "arguments": arguments}]}


async def turn_of(*replies: Any, skills: Any, limits: Limits | None = None, **options: Any) -> tuple[Turn, str]:
    """Run a turn; return the turn and the instructions of its first request."""
    model = ScriptedProvider([*replies, "Done."])
    async with DialClient(model, skills=skills, limits=limits, **options) as dial:
        turn = await dial.run("Fill the form.")
    return turn, "\n".join(instruction.text for instruction in model.requests[0].instructions)


def texts(turn: Turn) -> list[str]:
    return [str(record.result.content) for record in turn.tool_calls]


async def test_the_model_reads_names_first_then_instructions_then_a_file(tmp_path: Path) -> None:
    write_skill(tmp_path, "forms", "Read a.md first.", "Fills forms.", a__md="The fields.")
    turn, instructions = await turn_of(reads(name="forms"), reads(name="forms", path="./a.md"), skills=[tmp_path])
    assert "- forms: Fills forms." in instructions
    assert "Read a.md first." not in instructions
    body, file = texts(turn)
    assert body.endswith("reads its files: a.md]\nRead a.md first.")
    assert file.endswith("]\nThe fields.")


async def test_without_skills_nothing_is_offered_and_nothing_is_said() -> None:
    model = ScriptedProvider(["Done."])
    async with DialClient(model) as dial:
        await dial.run("Hello")
    assert model.requests[0].tools == ()
    assert "skill" not in str(model.requests[0].instructions)


async def test_skills_beyond_the_budget_are_counted_and_can_be_listed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_skill(tmp_path, name, description=f"Does {name}.")
    turn, instructions = await turn_of(reads(), skills=[tmp_path], limits=Limits(max_skill_bytes=20))
    assert "- a: Does a." in instructions
    assert "- b" not in instructions
    assert "2 more skills: read_skill without a name lists all." in instructions
    assert texts(turn) == ["- a: Does a.\n- b: Does b.\n- c: Does c."]


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "..\\secret.txt", ".env", "sub"]
)
async def test_no_path_leaves_the_folder(tmp_path: Path, path: str) -> None:
    skill = write_skill(tmp_path / "skills", "forms", sub__md="x")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "skills" / "secret.txt").write_text("secret")
    (skill / ".env").write_text("secret")
    (skill / "sub").mkdir()
    turn, _ = await turn_of(reads(name="forms", path=path), skills=[skill])
    [record] = turn.tool_calls
    assert record.result.failure is Failure.TOOL
    assert "has no file" in texts(turn)[0]


async def test_a_folder_of_a_skill_is_read_as_the_names_of_its_files(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "forms", a__md="x")
    (skill / "templates" / "old").mkdir(parents=True)
    for number in range(70):  # more than the text of the skill names
        (skill / "templates" / f"{number:02}.md").write_text("x")
    (skill / "templates" / "old" / "b.md").write_text("x")
    asked = [reads(name="forms", path=path) for path in ("templates/", "templates/old", "templates/0", ".")]
    turn, _ = await turn_of(*asked, skills=[tmp_path])
    listed, old, part, everything = texts(turn)
    assert listed.splitlines()[1:] == [*(f"templates/{number:02}.md" for number in range(70)), "templates/old/b.md"]
    assert old.splitlines()[1:] == ["templates/old/b.md"]
    assert "has no file" in part
    assert len(everything.splitlines()) == 73


@posix_only
async def test_links_in_a_skill_are_not_followed(tmp_path: Path) -> None:
    skill, outside = write_skill(tmp_path, "forms"), tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    (skill / "link.txt").symlink_to(outside / "secret.txt")
    (skill / "folder").symlink_to(outside)
    turn, _ = await turn_of(
        reads(name="forms"),
        reads(name="forms", path="link.txt"),
        reads(name="forms", path="folder/secret.txt"),
        skills=[skill],
    )
    assert "link.txt" not in texts(turn)[0]
    assert all("has no file" in text for text in texts(turn)[1:])


async def test_a_file_that_is_no_text_is_refused_with_its_size(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "forms")
    (skill / "form.pdf").write_bytes(b"%PDF\0\xff")
    turn, _ = await turn_of(reads(name="forms", path="form.pdf"), skills=[skill])
    assert "form.pdf of the skill forms is not text: it has 6 bytes" in texts(turn)[0]


async def test_an_unknown_skill_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    turn, _ = await turn_of(reads(name="pdf-form"), skills=[write_skill(tmp_path, "forms")])
    assert texts(turn) == ["there is no skill 'pdf-form' (did you mean forms?)"]


async def test_of_two_skills_of_one_name_the_first_is_used_and_a_note_says_so(tmp_path: Path) -> None:
    first, second = write_skill(tmp_path / "a", "forms", "One."), write_skill(tmp_path / "b", "forms", "Two.")
    turn, _ = await turn_of(reads(name="forms"), skills=[first, second])
    assert texts(turn)[0].endswith("One.")
    assert any(f"{first} is used, and not that in {second}" in note for note in turn.notes)


async def test_allowed_tools_allow_nothing(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "forms", description="Fills.\nallowed-tools: functions/send")
    sent: list[str] = []

    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    call = {"tool_calls": [{"name": "send", "arguments": {"text": "x"}}]}
    policy = ApprovalPolicy(deny=["functions/*"])
    turn, _ = await turn_of(reads(name="forms"), call, skills=[skill], tools=[send], approval=policy)
    assert [record.result.failure for record in turn.tool_calls] == [None, Failure.DENIED]
    assert sent == []


async def test_a_deny_rule_denies_reading_skills(tmp_path: Path) -> None:
    policy = ApprovalPolicy(deny=["read_skill"])
    turn, _ = await turn_of(reads(name="forms"), skills=[write_skill(tmp_path, "forms")], approval=policy)
    assert turn.tool_calls[0].result.failure is Failure.DENIED


async def test_a_turn_without_the_tool_has_no_list_of_skills(tmp_path: Path) -> None:
    model = ScriptedProvider(["Done."])
    async with DialClient(model, skills=[write_skill(tmp_path, "forms")], tools=[str.upper]) as dial:
        await dial.run("Hello", tools=["functions/*"])
    assert [tool.name for tool in model.requests[0].tools] == ["upper"]
    assert "forms" not in str(model.requests[0].instructions)


async def test_files_that_were_trusted_are_compared_when_they_are_read(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "forms", a__md="Good.", b__md="Good.")
    trusted = SkillFolder(skill, hash_files(skill))
    (skill / "b.md").write_text("Evil.")
    (skill / "c.md").write_text("New.")
    turn, _ = await turn_of(*(reads(name="forms", path=f"{name}.md") for name in "abc"), skills=[trusted])
    good, changed, new = texts(turn)
    assert good.endswith("Good.")
    assert "has changed since it was trusted" in changed
    assert "has no file 'c.md'" in new


async def test_a_message_of_the_user_begins_with_the_skill(tmp_path: Path) -> None:
    async with DialClient(skills=[write_skill(tmp_path, "forms", "Read it.")]) as dial:
        message = await dial.skills.build_message("forms", "Fill a.pdf.")
        [summary] = await dial.skills.list()
        review = await dial.skills.review("forms")
    assert message.text.endswith("]\nRead it.\n\nFill a.pdf.")
    assert message.taint == ""
    assert (summary.name, summary.server, summary.is_withheld) == ("forms", "", False)
    assert review.text.startswith("---\nname: forms\n")


@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        (lambda folder: folder / "none", "No such file or directory|cannot find"),
        (
            lambda folder: write_skill(folder, "forms").rename(folder / "other"),
            "the name forms is not that of the folder",
        ),
    ],
)
async def test_a_wrong_folder_is_an_error_of_the_configuration(tmp_path: Path, prepare: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        DialClient(skills=[prepare(tmp_path)])


async def test_a_text_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    wrong: Any = str(tmp_path)
    with pytest.raises(TypeError, match="skills takes a list of folders"):
        DialClient(skills=wrong)


async def test_a_configuration_names_folders_relative_to_itself(tmp_path: Path) -> None:
    write_skill(tmp_path / "team", "forms")
    (tmp_path / "servers.json").write_text('{"mcpServers": {}, "skills": ["team"]}')
    settings = configuration.load_config(tmp_path / "servers.json")
    assert settings.skills == (tmp_path / "team",)
    async with DialClient.from_config(settings) as dial:
        assert [skill.name for skill in await dial.skills.list()] == ["forms"]
