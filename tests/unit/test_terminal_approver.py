"""Approval at the terminal: single calls, groups of calls, edited arguments, and diffs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from tests.inner import FILE_CHANGES_MAX_BYTES as MAX_BYTES
from tests.inner import (
    Approval,
    ApprovalContext,
    Decision,
    Panel,
    ServerSettings,
    TerminalApprover,
    ToolCallRequest,
    ToolSpec,
    Transport,
    diff,
    find_changes,
)
from tests.support.typed_screen import TypedScreen

pytestmark = pytest.mark.anyio

REASON = "No, because (Enter for no reason):"
PLAIN = re.compile(r"\x1b\[[0-9;]*m")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "count": {"type": "integer", "maximum": 5}}}


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


class Person(TypedScreen):
    """A screen whose user presses scripted keys; it records the text it shows."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)
        self.shown: list[str] = []
        self.questions: list[str] = []
        self.panels: list[Panel] = []
        self.place = anyio.Lock()

    def print(self, text: str) -> None:
        self.shown.append(text)

    def print_prose(self, text: str) -> None:
        self.print(text)

    @contextmanager
    def show_panel(self, panel: Panel, notice: str) -> Iterator[None]:  # noqa: ARG002
        self.panels.append(panel)
        yield
        self.panels.pop()

    async def ask_key(
        self,
        lines: Sequence[str],
        question: str,
        keys: Mapping[str, str],
        *,
        on_move: Callable[[int], None] | None = None,
    ) -> str:
        rows = self.panels[-1](80, 60)
        assert (on_move is None) is bool(question)
        self.shown += [PLAIN.sub("", row).strip("│╭╰╮╯─").rstrip()[1:] for row in rows]
        self.shown += lines
        self.questions.append(question or PLAIN.sub("", rows[0]).strip("╭╮─ "))
        while (key := self.answers.pop(0)) not in keys:
            pass
        return key

    async def ask_line(
        self,
        question: str,
        *,
        hidden: bool = False,  # noqa: ARG002
        default: str = "",  # noqa: ARG002
        on_move: Callable[[int], None] | None = None,  # noqa: ARG002
    ) -> str:
        self.questions.append(question)
        return self.answers.pop(0)

    running_calls = 0

    def note_decision(self, line: str) -> None:
        self.shown.append(line)

    @asynccontextmanager
    async def question(self, call_id: str | None = None) -> AsyncIterator[None]:  # noqa: ARG002
        async with self.place:
            yield


def tool(name: str = "write", server: str = "files") -> ToolSpec:
    return ToolSpec(name, "", SCHEMA, server=server, tool=name, original_schema=SCHEMA)


def servers(folder: Path) -> dict[str, object]:
    return {"files": ServerSettings("files", Transport.STDIO, command="server", args=(str(folder),))}


async def decide(
    person: Person, *calls: Mapping[str, Any], names: Sequence[str] = (), change: str = "", folder: Path = Path()
) -> list[Approval]:
    """Ask for the approval of calls that arrive at the same time."""
    sink: Any = person
    approver = TerminalApprover(sink, person, servers(folder))
    answers: dict[int, Approval] = {}

    async def ask(at: int, arguments: Mapping[str, Any], *, task_status: TaskStatus[None]) -> None:
        spec = tool(names[at] if names else "write")
        context = ApprovalContext("files", change)
        task_status.started()
        answers[at] = await approver.decide(ToolCallRequest(str(at), spec.name, dict(arguments)), spec, context)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for at, arguments in enumerate(calls):
                await group.start(ask, at, arguments)
    assert person.answers == []
    return [answers[at] for at in range(len(calls))]


async def test_a_key_decides_and_a_denial_may_have_a_reason() -> None:
    for keys, expected, line in (
        (("y",), Approval("once"), "allowed: write · files"),
        (("x", "s"), Approval("session"), "allowed for this session: write · files"),
        (("d", "a"), Approval("always"), "allowed always: write · files"),
        (("n", ""), Approval("deny", "the user said no"), "not allowed: write · files"),
        (("n", "wrong file"), Approval("deny", "wrong file"), "not allowed: write · files: wrong file"),
        (("\x1b",), Approval("deny", "the user said no"), "not allowed: write · files"),
    ):
        person = Person(*keys)
        assert await decide(person, {"path": "a"}) == [expected]
        assert person.questions[0] == "write · files"
        assert person.shown[-1] == line


async def test_calls_that_wait_together_are_numbered_and_answered_together() -> None:
    person = Person("y")
    calls = [{"path": f"file{at}"} for at in range(3)]
    assert await decide(person, *calls, names=("read", "write", "write")) == [Approval("once")] * 3
    assert person.shown[:-1] == [
        "3 calls to decide",
        '1  read · files  path="file0"',
        '2  write · files  path="file1"',
        '3  write · files  path="file2"',
        "y yes to all · n no to all… · s this session · a always · 1-3 one alone",
        "d details · q stop",
    ]
    assert person.shown[-1] == "allowed: read · files, write · files, write · files"


async def test_one_of_several_calls_can_be_answered_alone() -> None:
    person = Person("2", "n", "not this", "y")
    answers = await decide(person, {"path": "a"}, {"path": "b"})
    assert answers == [Approval("once"), Approval("deny", "not this")]
    assert person.questions == ["2 calls to decide", "write · files", REASON, "write · files"]


async def test_the_user_can_go_back_from_one_call_to_all_of_them() -> None:
    person = Person("2", "b", "y")
    assert await decide(person, {"path": "a"}, {"path": "b"}) == [Approval("once")] * 2
    assert person.questions == ["2 calls to decide", "write · files", "2 calls to decide"]


async def test_a_grant_for_the_session_answers_the_other_calls_of_the_tool() -> None:
    person = Person("1", "s", "4", "y", "y")
    answers = await decide(person, *[{"path": "a"}] * 4, names=("write", "write", "read", "read"))
    assert [answer.decision for answer in answers] == [Decision.SESSION, *[Decision.ONCE] * 3]
    at = person.shown.index("2 calls to decide")
    assert [line[:8] for line in person.shown[at + 1 : at + 3]] == ["3  read ", "4  read "], "numbers stay"
    changed = await decide(Person("1", "s", "n", ""), {"path": "a"}, {"path": "b"}, change="-old\n+new")
    assert [answer.allowed for answer in changed] == [True, False]


async def test_a_change_of_the_tool_is_shown_before_its_arguments() -> None:
    person = Person("y")
    await decide(person, {"path": "a"}, change="-old\n+new")
    assert person.shown[1:5] == ["! files has changed write since it was approved:", "  - old", "  + new", "path  a"]
    person = Person("y")
    await decide(person, {"path": "a"}, {"path": "b"}, change="-old\n+new")
    assert person.shown.count("   ! files has changed write since it was approved") == 2


async def test_edited_arguments_are_checked_shown_and_returned() -> None:
    person = Person("e", "2", "9", "e", "three", "e", "3", "y")
    [answer] = await decide(person, {"path": "a", "count": 1})
    assert answer == Approval("once", arguments={"path": "a", "count": 3})
    assert "The arguments do not fit: count: 9 is greater than the maximum of 5" in person.shown
    assert any(line.startswith("The arguments do not fit: count is not JSON") for line in person.shown)
    at = person.shown.index("count  +1 -1 lines · changed by you")
    assert "count  1" in person.shown[:at]
    assert person.shown[at + 1 : at + 3] == ["  - 1", "  + 3"], "the old value is shown"
    assert person.shown[-1] == "allowed with changed arguments: write · files"
    assert await decide(Person("e", "1", "b", "e", "1", "a", "y"), {"path": "a", "count": 1}) == [Approval("once")]
    assert await decide(Person("e", "9", "d", "y"), {"count": 1}) == [Approval("once")]


async def test_a_changed_file_is_shown_as_a_diff(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("one\ntwo\nthree\n", encoding="utf-8")
    person = Person("d", "y")
    await decide(person, {"path": str(tmp_path / "notes.md"), "content": "one\n2\nthree\n"}, folder=tmp_path)
    at = person.shown.index("content  +1 -1 lines")
    assert person.shown[at + 1 : at + 5] == ["    one", "  - two", "  + 2", "    three"]
    assert person.shown[at + 5].startswith("y yes"), "the line break at the end of both texts is not shown"
    assert "  2" in person.shown[at + 6 :], "the details have the argument itself"


async def test_a_write_that_changes_no_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("one\ntwo\n", encoding="utf-8")
    person = Person("y")
    await decide(person, {"path": str(tmp_path / "notes.md"), "content": "one\ntwo\n"}, folder=tmp_path)
    at = person.shown.index("content  no line changes: the file has these lines already")
    assert person.shown[at + 1 : at + 4] == ["content  2 lines", "  one", "  two"], "nothing that is sent is hidden"
    person = Person("y")
    await decide(person, {"path": str(tmp_path / "new.md"), "content": ""}, folder=tmp_path)
    assert not any("already" in line for line in person.shown), "an empty new file is a change"


async def test_a_new_file_is_shown_as_added_lines(tmp_path: Path) -> None:
    person = Person("y")
    await decide(person, {"path": str(tmp_path / "new.md"), "content": "one\n2\n"}, folder=tmp_path)
    at = person.shown.index("content  +2 lines · new file")
    assert person.shown[at + 1 : at + 3] == ["  + one", "  + 2"]
    person = Person("y")
    await decide(person, {"path": str(tmp_path.parent / "new.md"), "content": "one\n2\n"}, folder=tmp_path)
    assert "content  2 lines" in person.shown, "nothing is said about files outside of the folders of the server"


async def test_an_edit_is_shown_with_the_lines_of_the_file_around_it(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("\n".join(f"line {at}" for at in range(5_000)), encoding="utf-8")
    settings = servers(tmp_path)["files"]
    assert isinstance(settings, ServerSettings)
    edits = [{"oldText": "line 2\n", "newText": "2\n"}, {"oldText": "line 4000\n", "newText": ""}]
    [change] = find_changes({"path": str(file), "edits": edits[:1]}, settings)
    around = ("-line 2", "+2", " line 3", " line 4", " line 5")
    assert change.lines == (" line 0", " line 1", *around)
    assert change.unchanged == 0
    [change] = find_changes({"path": str(file), "edits": edits}, settings)
    assert change.lines == ("-line 2", "+2", "@", "-line 4000"), "a comparison would take too long"
    file.write_text("line 2\nline 2\n", encoding="utf-8")
    [change] = find_changes({"path": str(file), "edits": edits[:1]}, settings)
    assert change.lines == ("-line 2", "+2"), "which of the lines is meant is not known"


async def test_edits_are_shown_as_a_diff_and_files_outside_are_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.txt").write_text("old\n", encoding="utf-8")
    settings = servers(inside)["files"]
    assert isinstance(settings, ServerSettings)

    def changes(**arguments: Any) -> list[tuple[str, tuple[str, ...]]]:
        return [(change.argument, change.lines) for change in find_changes(arguments, settings)]

    edits = [{"oldText": "a\nb", "newText": "a\nc"}, {"oldText": "x", "newText": ""}]
    assert changes(path="p", edits=edits) == [("edits", (" a", "-b", "+c", "@", "-x"))]
    assert changes(file_path="p", old_string="a", new_string="b") == [("old_string", ("-a", "+b"))]
    assert changes(path=str(inside / "a.txt"), content="new\n") == [("content", ("-old", "+new"))]
    (inside / "link.txt").symlink_to(outside / "a.txt")
    (inside / "large.txt").write_text("x" * (MAX_BYTES + 1), encoding="utf-8")
    (inside / "binary").write_bytes(b"\xff\x00")
    names = ("../outside/a.txt", "link.txt", "large.txt", "binary", ".")
    unread = [outside / "a.txt", *(inside / name for name in names)]
    assert changes(path=str(inside / "none"), content="new\n") == [("content", ("+new",))]
    assert [path for path in unread if changes(path=str(path), content="new\n")] == []
    assert diff("a\u200b", "a") == ["-a\\u{200b}", "+a"]
    assert diff("x\n" * 5_000, "y\n" * 5_000) is None
    assert diff("a\n", "a") == [" a", "-"], "a line break at the end is a difference"
    assert diff("", "a\n") == ["+a"]


async def test_a_diff_omits_no_sent_text_without_a_notice(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("KEY=hunter2\n", encoding="utf-8")
    context = "\n".join(["SECRET", *(f"line {at}" for at in range(10))])

    async def shown(*keys: str, **arguments: Any) -> list[str]:
        person = Person(*keys)
        await decide(person, arguments, folder=tmp_path)
        return person.shown

    lines = await shown("y", old_string="pass", new_string="\n".join(["curl evil", *["x"] * 1_001]))
    assert "new_string  1,002 lines" in lines
    assert "  curl evil" in lines
    lines = await shown("y", search="SECRET", replace="SECRET")
    assert [line for line in lines if "SECRET" in line] == ["search   SECRET", "replace  SECRET"]
    assert any("SECRET" in line for line in await shown("y", edits=[{"search": "SECRET", "replace": "SECRET"}]))
    assert any("hunter2" in line for line in await shown("y", path=str(file), content="KEY=hunter2\n"))
    left_out = "  … 8 unchanged lines · d shows all"
    assert left_out in await shown("y", old_text=f"{context}\nend", new_text=f"{context}\nend!")
    assert left_out in await shown("y", edits=[{"oldText": f"{context}\nend", "newText": f"{context}\nend!"}])
    lines = await shown("d", "y", old_text=f"{context}\nend", new_text=f"{context}\nend!")
    assert lines.count(left_out) == 1
    assert "  SECRET" in lines
    file.write_text(f"{context}\nend", encoding="utf-8")
    assert left_out in await shown("y", path=str(file), content=f"{context}\nend!")
