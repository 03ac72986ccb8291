"""The terminal sink: answers on standard output, status and tool calls on standard error, both on one screen."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass, replace
from functools import partial

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.inner import (
    PATIENCE,
    Event,
    Failure,
    Finished,
    Message,
    MessageCompleted,
    ReasoningDelta,
    RoundStarted,
    ServerChanged,
    ServerLog,
    StatusChanged,
    StopReason,
    TerminalSink,
    TextDelta,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    Turn,
    Usage,
)
from tests.support.fakes import virtual_time

CALL = ToolCallRequest("1", "add", {"a": 1, "b": "x y"})
GOOD = ToolCallResult("1", success=True, content="3")
BAD = ToolCallResult.failed("1", Failure.TIMEOUT, "no result within 5 seconds")
ASKS = MessageCompleted(Message.assistant("", [CALL]))
STARTED, DONE, FAILED = (
    ToolCallStarted(CALL, "maths", "add"),
    ToolCallFinished(GOOD, "maths", 0.25),
    ToolCallFinished(BAD, "maths", 5),
)


class Stream(io.StringIO):
    """One of two output streams; `screen` records the writes of both streams in order."""

    def __init__(self, screen: list[str], tty: bool) -> None:
        super().__init__()
        self._screen = screen
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def write(self, text: str) -> int:
        self._screen.append(text)
        return super().write(text)


@dataclass
class Terminal:
    """A terminal sink with its streams, and all written text in order."""

    sink: TerminalSink
    out: Stream
    err: Stream
    written: list[str]

    def show(self, *events: Event) -> Terminal:
        for event in events:
            self.sink.show(event)
        return self

    @property
    def screen(self) -> list[str]:
        """The visible lines of a terminal that shows both streams."""
        lines, at = [""], 0
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", "".join(self.written)):
            if part == "\n":
                lines, at = [*lines, ""], 0
            elif part == "\r":
                at = 0
            elif part == "\x1b[K":
                lines[-1] = lines[-1][:at]
            elif not part.startswith("\x1b"):
                lines[-1] = lines[-1][:at] + part + lines[-1][at + 1 :]
                at += 1
        return lines


def open_terminal(*, tty: bool = True, reasoning: bool = False, usage: bool = False) -> Terminal:
    written: list[str] = []
    out, err = Stream(written, tty), Stream(written, tty)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return Terminal(TerminalSink(reasoning=reasoning, usage=usage), out, err, written)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")


def finished(reason: StopReason = StopReason.ANSWERED) -> Finished:
    return Finished(Turn(Message.assistant("x"), (), reason, 0, Usage()))


def says(text: str) -> tuple[Event, ...]:
    return (*(TextDelta(piece) for piece in text), MessageCompleted(Message.assistant(text)))


# --- the two streams ------------------------------------------------------------------------------


def test_only_the_answer_is_on_standard_output() -> None:
    shown = open_terminal(tty=False).show(
        RoundStarted(0), StatusChanged("Working…"), ASKS, STARTED, DONE, RoundStarted(1), *says("It is 3."), finished()
    )
    assert shown.out.getvalue() == "It is 3.\n"
    assert shown.err.getvalue() == '→ maths.add(a=1, b="x y")\n✓ 0.25 s\n'


@pytest.mark.parametrize(("may_call", "written"), [(True, ""), (False, "It is")])
def test_an_answer_that_no_call_can_follow_is_written_while_it_streams(may_call: bool, written: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sink = TerminalSink(has_answer_alone=True)
    sink.show(RoundStarted(0, may_call))
    sink.show(TextDelta("It is"))
    assert out.getvalue() == written
    sink.show(TextDelta(" 3."))
    sink.show(MessageCompleted(Message.assistant("It is 3.")))
    sink.show(finished())
    assert (out.getvalue(), err.getvalue()) == ("It is 3.\n", "")


@pytest.mark.parametrize(
    ("used", "cost", "line"),
    [
        (Usage(1200, 34), None, r"1,200 tokens in, 34 out · \d\.\d s\n"),
        (Usage(1200, 34, 1000), 0.00123, r"1,200 tokens in \(1,000 cached\), 34 out · about \$0\.0012 · \d\.\d s\n"),
    ],
)
def test_the_usage_is_printed_after_the_turn_on_request(used: Usage, cost: float | None, line: str) -> None:
    turn = Turn(Message.assistant("x"), (), StopReason.ANSWERED, 0, used, cost_usd=cost)
    assert re.fullmatch(line, open_terminal(tty=False, usage=True).show(Finished(turn)).err.getvalue())
    assert open_terminal(tty=False).show(Finished(turn)).err.getvalue() == ""


def test_an_answer_with_a_final_line_feed_gets_no_second_line_feed() -> None:
    assert open_terminal(tty=False).show(*says("It is 3.\n"), finished()).out.getvalue() == "It is 3.\n"


def test_without_a_terminal_there_is_no_status_and_no_escape_sequence() -> None:
    shown = open_terminal(tty=False).show(
        StatusChanged("Working…"), ToolCallProgress("1", 1, 2, "half"), ServerChanged("maths", "ready"), ASKS, STARTED,
        FAILED, *says("no"), finished(StopReason.CANCELLED),
    )  # fmt: skip
    assert shown.err.getvalue() == '→ maths.add(a=1, b="x y")\n✗ 5.00 s: no result within 5 seconds\ninterrupted\n'
    assert "\x1b" not in "".join(shown.written)


@pytest.mark.parametrize(
    ("value", "colourful"), [("1", False), ("", True), (None, True)], ids=["set", "empty", "not set"]
)
def test_the_variable_no_color_disables_colours(
    monkeypatch: pytest.MonkeyPatch, value: str | None, colourful: bool
) -> None:
    if value is not None:
        monkeypatch.setenv("NO_COLOR", value)
    shown = open_terminal().show(ASKS, STARTED, DONE)
    assert ("\x1b[2m" in shown.err.getvalue()) == colourful


def test_a_terminal_that_cannot_clear_a_row_gets_whole_lines_without_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    shown = open_terminal().show(StatusChanged("Working…"), ASKS, STARTED, DONE, *says("3"), finished())
    assert shown.err.getvalue() == '→ maths.add(a=1, b="x y")\n✓ 0.25 s\n'


def test_arguments_are_shown_in_the_characters_of_their_language() -> None:
    shown = open_terminal(tty=False).show(ASKS, ToolCallStarted(ToolCallRequest("1", "f", {"city": "東京\x1b[2J"}), ""))
    assert shown.err.getvalue() == '→ f(city="東京\\u001b[2J")\n'


@pytest.mark.anyio
async def test_a_line_printed_by_other_code_has_its_own_row() -> None:
    shown = open_terminal().show(ServerChanged("maths", "ready"))
    shown.sink.let_print(partial(print, "one server failed", file=shown.err))
    shown.show(TextDelta("It is"))
    shown.sink.let_print(partial(print, "another one", file=shown.err))
    async with shown.sink.question():
        shown.sink.let_print(partial(print, "a third one", file=shown.err))
        shown.err.write("Sure? y\n")
    assert shown.screen == ["one server failed", "It is", "another one", "Sure? y", "a third one", ""]


def test_an_unknown_tool_is_shown_by_the_name_the_model_gave() -> None:
    shown = open_terminal(tty=False).show(ASKS, ToolCallStarted(ToolCallRequest("1", "xyzzy", {}), ""))
    assert shown.err.getvalue() == "→ xyzzy()\n"


def test_an_interrupted_turn_is_reported_on_its_own_line() -> None:
    shown = open_terminal().show(TextDelta("It is"), finished(StopReason.CANCELLED))
    assert shown.screen == ["It is", "interrupted", ""]


# --- one screen -----------------------------------------------------------------------------------


def test_text_and_tool_calls_are_on_separate_lines() -> None:
    shown = open_terminal().show(
        TextDelta("Let me see."), ASKS, STARTED, DONE, TextDelta("It is"), STARTED, FAILED, *says(" 3."), finished()
    )
    assert shown.screen == [
        "Let me see.", '→ maths.add(a=1, b="x y")', "✓ 0.25 s", "It is", '→ maths.add(a=1, b="x y")',
        "✗ 5.00 s: no result within 5 seconds", " 3.", "",
    ]  # fmt: skip


@pytest.mark.parametrize("tty", [True, False], ids=["terminal that only prints", "pipe"])
def test_the_results_of_concurrent_calls_name_their_calls(monkeypatch: pytest.MonkeyPatch, tty: bool) -> None:
    monkeypatch.setenv("TERM", "dumb")
    second = ToolCallRequest("2", "add", {"a": 2, "b": "y"})
    shown = open_terminal(tty=tty).show(STARTED, ToolCallStarted(second, "maths", "add"))
    shown.show(DONE, ToolCallFinished(replace(BAD, tool_call_id="2"), "maths", 5), STARTED, DONE)
    assert shown.screen[2:] == [
        '✓ maths.add(a=1, b="x y") 0.25 s',
        '✗ maths.add(a=2, b="y") 5.00 s: no result within 5 seconds',
        '→ maths.add(a=1, b="x y")', "✓ 0.25 s", "",
    ]  # fmt: skip


def test_a_call_in_the_background_has_a_line_that_says_so() -> None:
    shown = open_terminal().show(STARTED, ToolCallFinished(replace(GOOD, background="4f"), "maths", 120))
    assert shown.screen[1] == "… goes on in the background"


def test_a_call_is_one_row_and_its_error_is_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    call = ToolCallStarted(ToolCallRequest("1", "add", {"a": "words " * 50}), "maths", "add")
    failed = ToolCallFinished(ToolCallResult.failed("1", Failure.TOOL, "six words " * 9), "maths", 1)
    shown = open_terminal().show(call, failed)
    assert shown.screen[0].startswith('→ maths.add(a="words words')
    assert all(len(line) < 40 and not line.endswith(("w", "wo", "wor")) for line in shown.screen)
    assert shown.screen[1].startswith("✗ 1.00 s: six words")


def test_a_status_is_cleared_before_other_output() -> None:
    shown = open_terminal().show(StatusChanged("Analyzing…"), StatusChanged("Selecting…"))
    assert shown.screen == ["Selecting…"]
    assert shown.show(ASKS, STARTED, StatusChanged("Using Add…")).screen[-1] == "Using Add…"
    assert shown.show(ToolCallProgress("1", 1, 2, "half")).screen[-1] == "1 of 2 half"
    assert shown.show(ToolCallProgress("1", 3, None, None)).screen[-1] == "3"
    shown.show(DONE, StatusChanged("Formulating…"), *says("3"), finished())
    assert shown.screen == ['→ maths.add(a=1, b="x y")', "✓ 0.25 s", "3", ""]


def test_a_status_does_not_interrupt_the_answer() -> None:
    assert open_terminal().show(TextDelta("It is "), StatusChanged("Working…"), TextDelta("3")).screen == ["It is 3"]


def test_a_status_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert len(open_terminal().show(StatusChanged("long " * 50)).screen[-1]) < 30


def test_reasoning_is_shown_only_on_request() -> None:
    thoughts = [ReasoningDelta(piece) for piece in ("The ", "clock ", "says\nnoon", ".")]
    assert open_terminal().show(*thoughts, *says("Noon."), finished()).screen == ["Noon.", ""]
    shown = open_terminal(reasoning=True).show(StatusChanged("Analyzing…"), *thoughts, *says("Noon."), finished())
    assert shown.screen == ["The clock says", "noon.", "Noon.", ""]
    assert shown.out.getvalue() == "Noon.\n"


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.sampled_from(["a", "b\n", "\n", "c\x1b[", "31md", "\x9d"]).map(TextDelta),
    st.sampled_from(["think ", "hard\n"]).map(ReasoningDelta),
    st.just(StatusChanged("STATUS")),
    st.just(ServerChanged("STATUS", "up")),
    st.just(ToolCallProgress("1", 1, 2, "STATUS")),
    st.sampled_from([ASKS, STARTED, DONE, FAILED]),
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(EVENTS, max_size=15), tty=st.booleans(), reasoning=st.booleans())
def test_any_sequence_of_events_has_one_kind_of_text_per_line(events: list[Event], tty: bool, reasoning: bool) -> None:
    shown = open_terminal(tty=tty, reasoning=reasoning).show(*events, finished())
    whole = re.compile(
        r'|→ maths\.add\(a=1, b="x y"\)|[✓✗] (maths\.add\(a=1, b="x y"\) )?(0\.25 s|5\.00 s: no result'
        r" within 5 seconds)|[a-d31m]+|(think |hard)+"
    )
    assert [line for line in shown.screen if not whole.fullmatch(line)] == []
    assert shown.screen[-1] == "", "and the prompt that comes next begins a line"


# --- prompts of the user --------------------------------------------------------------------------


@pytest.mark.anyio
async def test_no_output_overwrites_a_prompt() -> None:
    shown = open_terminal(reasoning=True).show(StatusChanged("Using Add…"), ASKS, STARTED)
    async with shown.sink.question("1"):
        before = list(shown.written)
        shown.show(StatusChanged("Using Add…"), ToolCallProgress("2", 1, 2, "half"), ServerChanged("maths", "gone"))
        assert shown.written == before
        shown.show(FAILED, TextDelta("evil? [y]es"))
        assert shown.written == before, "another call must not be able to draw in it"
    assert shown.screen[-2:] == ["✗ 5.00 s: no result within 5 seconds", "evil? [y]es"]
    shown.show(MessageCompleted(Message.assistant("x")), StatusChanged("Using Add…"))
    assert shown.screen[-1] == "Using Add…"


@pytest.mark.anyio
async def test_a_call_with_a_prompt_for_approval_is_not_shown_twice() -> None:
    shown = open_terminal().show(ASKS, STARTED)
    assert shown.screen == ['→ maths.add(a=1, b="x y")']
    async with shown.sink.question("1"):
        assert shown.screen == [""], "the question shows the arguments"
    assert shown.show(DONE, finished()).screen == ["→ maths.add", "✓ 0.25 s", ""]


@pytest.mark.anyio
@pytest.mark.parametrize("begun", [TextDelta("Let me"), ReasoningDelta("hm"), StatusChanged("Using…")], ids=str)
async def test_a_prompt_begins_on_a_new_line(begun: Event) -> None:
    shown = open_terminal(reasoning=True).show(ASKS, STARTED, begun)
    async with shown.sink.question("1"):
        assert shown.screen[-1] == ""


async def _ask(shown: Terminal, asked: anyio.Event) -> None:
    async with shown.sink.question("1"):
        asked.set()


@virtual_time
@pytest.mark.anyio
@pytest.mark.parametrize("earlier", [[], [ASKS, STARTED, DONE]], ids=["the first call", "an id that was used before"])
async def test_a_prompt_waits_until_its_call_is_shown(earlier: list[Event]) -> None:
    shown, asked = open_terminal().show(*earlier), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_ask, shown, asked)
        await anyio.sleep(PATIENCE / 2)
        assert not asked.is_set()
        shown.show(ASKS, STARTED)
        await anyio.wait_all_tasks_blocked()
        assert asked.is_set()


@virtual_time
@pytest.mark.anyio
async def test_a_prompt_for_a_call_that_is_never_shown_appears_after_a_timeout() -> None:
    shown, asked, began = open_terminal(), anyio.Event(), anyio.current_time()
    await _ask(shown, asked)
    assert asked.is_set()
    assert anyio.current_time() - began == pytest.approx(PATIENCE)


# --- foreign text is escaped ----------------------------------------------------------------------

NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b\x00\u202e\U000e0041evil\ud800"
FOREIGN: list[tuple[str, list[Event]]] = [
    ("text", [TextDelta(NASTY)]),
    ("text in pieces", [TextDelta(character) for character in NASTY]),
    ("text that ends in the middle", [TextDelta("evil\x1b]0;own"), MessageCompleted(Message.assistant("x"))]),
    ("thoughts", [ReasoningDelta(NASTY)]),
    ("thoughts in pieces", [ReasoningDelta(character) for character in NASTY]),
    ("a status", [StatusChanged(NASTY)]),
    ("a tool's name", [ASKS, ToolCallStarted(CALL, "maths", NASTY)]),
    ("a server's name", [ASKS, ToolCallStarted(CALL, NASTY, "add")]),
    ("a name a model made up", [ASKS, ToolCallStarted(ToolCallRequest("1", NASTY, {}), "")]),
    ("arguments", [ASKS, ToolCallStarted(ToolCallRequest("1", "add", {NASTY: NASTY}), "maths", "add")]),
    ("an error", [ASKS, STARTED, ToolCallFinished(ToolCallResult.failed("1", Failure.TOOL, NASTY), "maths", 1)]),
    ("progress", [ToolCallProgress("1", 1, 2, NASTY)]),
    ("a server's state", [ServerChanged(NASTY, NASTY)]),
]


@pytest.mark.parametrize("events", [events for _, events in FOREIGN], ids=[name for name, _ in FOREIGN])
@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_foreign_text_is_escaped(monkeypatch: pytest.MonkeyPatch, events: list[Event], tty: bool) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = open_terminal(tty=tty, reasoning=True).show(*events, finished())
    written = "".join(shown.written)
    own = re.sub(r"\x1b\[(2m|0m|K)|\r(?=\x1b\[K)", "", written)
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\U000e0000-\U000e0fff\ud800-\udfff]", own) is None
    assert not tty or "evil" in own


@pytest.mark.parametrize("tty", [True, False])
def test_changed_arguments_are_shown_with_the_call(tty: bool) -> None:
    shown = open_terminal(tty=tty).show(STARTED, replace(DONE, changed_arguments={"a": 9}))
    assert ("→ maths.add(a=9)" if tty else "✓ maths.add(a=9) 0.25 s") in shown.screen


def test_an_argument_cannot_add_a_line() -> None:
    call = ToolCallRequest("1", "add", {"a\n✓ 0.25 s": "x\n✓ 0.25 s"})
    shown = open_terminal(tty=False).show(ASKS, ToolCallStarted(call, "maths", "add"))
    assert len(shown.err.getvalue().splitlines()) == 1


def test_long_arguments_and_errors_are_truncated() -> None:
    call = ToolCallRequest("1", "add", {"a": "x" * 10_000})
    bad = ToolCallFinished(ToolCallResult.failed("1", Failure.TOOL, "y" * 10_000), "maths", 1)
    lines = open_terminal(tty=False).show(ASKS, ToolCallStarted(call, "maths", "add"), bad).err.getvalue().splitlines()
    assert all(len(line) < 500 for line in lines)
    assert all("…" in line for line in lines)


def test_an_answer_with_a_control_character_is_shown_completely() -> None:
    shown = open_terminal(tty=False).show(TextDelta("the price\x9d is 4"), MessageCompleted(Message.assistant("x")))
    assert shown.out.getvalue() == "the price is 4\n"


# --- lines that nobody has asked for --------------------------------------------------------------


def test_a_line_of_the_program_waits_for_the_end_of_the_message_that_is_written() -> None:
    shown = open_terminal(tty=False)
    shown.show(TextDelta("It is "))
    shown.sink.let_print(lambda: print("2 servers ready", file=shown.err))
    shown.sink.log(ServerLog("maths", "warning", "low battery"))
    assert shown.err.getvalue() == ""
    shown.show(TextDelta("3."), MessageCompleted(Message.assistant("It is 3.")))
    assert "".join(shown.written) == "It is 3.\n2 servers ready\nmaths (warning): low battery\n"
