"""The calls of one round: found, checked, allowed, run side by side, and never an exception."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import CallToolResult

from dial_client.approvals import Approval, Approvals, Approver, Rules
from dial_client.catalog import catalog_of
from dial_client.connection import Connection
from dial_client.deadline import Deadline
from dial_client.errors import ServerError, ServerGone
from dial_client.events import ToolCallFinished, ToolCallProgress, ToolCallStarted
from dial_client.executor import ToolExecutor
from dial_client.life import OnProgress
from dial_client.limits import Limits
from dial_client.messages import Failure, ImagePart, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.settings import ServerSettings, Transport
from tests.stand_ins import Behaviour, Heard, server, text_result, tool_named, virtual_time

pytestmark = pytest.mark.anyio

STRICT = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "unit": {"type": "string"}},
    "required": ["count"],
}


class Round:
    """An executor with servers, and what was heard of the calls."""

    def __init__(
        self, *servers: Connection, approve: Approver | None = None, rules: Rules | None = None, **limits: Any
    ) -> None:
        catalog = catalog_of(servers)
        self.executor = ToolExecutor(lambda: catalog, Approvals(rules or Rules(), approve), Limits(**limits))
        self.heard = Heard()

    async def run(self, *calls: ToolCallRequest, seconds: float = 1000) -> tuple[ToolCallResult, ...]:
        return await self.executor.execute_all(calls, self.heard.emit, Deadline(seconds))


def call(name: str, /, *, id_: str = "1", **arguments: Any) -> ToolCallRequest:
    return ToolCallRequest(id_, name, arguments)


def runs(behaviour: Callable[[], Awaitable[object]], said: str = "done") -> Behaviour:
    """Make a server's behaviour of something that takes neither a name nor arguments."""

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        await behaviour()
        return text_result(said)

    return answer


def fails(error: Exception) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        raise error

    return answer


def gives(*blocks: dict[str, Any], is_error: bool = False, structured: Any = None) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        about = {"content": blocks, "isError": is_error, "structuredContent": structured}
        return CallToolResult.model_validate(about)

    return answer


class Refusal:
    """A server that must not be reached."""

    def __init__(self) -> None:
        self.reached = False

    async def __call__(self, *_: object) -> CallToolResult:
        self.reached = True
        return text_result("ran")


# --- one call -------------------------------------------------------------------------------------


async def test_a_call_reaches_its_server_under_the_tools_own_name() -> None:
    seen: list[object] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        seen.extend((tool, arguments))
        return text_result("noon")

    one = Round(server("clock", "time.now", call=answer))
    began = time.monotonic()
    [result] = await one.run(call("time_now", zone="UTC"))
    most = time.monotonic() - began
    assert seen == ["time.now", {"zone": "UTC"}]
    assert result == ToolCallResult("1", success=True, content="noon")
    started, finished = one.heard
    assert started == ToolCallStarted(call("time_now", zone="UTC"), "clock", "time.now")
    assert isinstance(finished, ToolCallFinished)
    assert (finished.result, finished.server) == (result, "clock")
    assert 0 <= finished.duration <= most


async def test_one_call_alone_can_be_run_too() -> None:
    one = Round(server("clock", "now"))
    result = await one.executor.execute(call("now"), one.heard.emit, Deadline(60))
    assert result.content == "now ran"


async def test_no_calls_no_results() -> None:
    assert await Round().run() == ()


CONTENTS: list[tuple[str, Behaviour, bool, Any, str | None]] = [
    ("text", gives({"type": "text", "text": "noon"}), True, "noon", None),
    ("structured only", gives(structured={"a": 1}), True, '{"a": 1}', None),
    ("nothing", gives(), True, "(no output)", None),
    (
        "an image",
        gives({"type": "image", "data": "AA==", "mimeType": "image/png"}),
        True,
        (ImagePart("AA==", "image/png"),),
        None,
    ),
    (
        "audio",
        gives({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}),
        True,
        "[audio, audio/wav, 3 bytes: it cannot be shown here]",
        None,
    ),
    (
        "an error",
        gives({"type": "text", "text": "no such zone\nat line 3"}, is_error=True),
        False,
        "no such zone\nat line 3",
        "no such zone",
    ),
    (
        "an error without words",
        gives(is_error=True),
        False,
        "The tool failed without saying why.",
        "The tool failed without saying why.",
    ),
    (
        "an error with blank words",
        gives({"type": "text", "text": " \n"}, is_error=True),
        False,
        "The tool failed without saying why.",
        "The tool failed without saying why.",
    ),
    ("an error with structure only", gives(is_error=True, structured={"code": 5}), False, '{"code": 5}', '{"code": 5}'),
    (
        "an error with an image",
        gives({"type": "image", "data": "AA==", "mimeType": "image/png"}, is_error=True),
        False,
        (ImagePart("AA==", "image/png"),),
        "The tool failed without saying why.",
    ),
]


@pytest.mark.parametrize(
    ("answer", "success", "content", "error"), [c[1:] for c in CONTENTS], ids=[c[0] for c in CONTENTS]
)
async def test_what_a_tool_gives_is_its_result(
    answer: Behaviour, success: bool, content: Any, error: str | None
) -> None:
    [result] = await Round(server("clock", "now", call=answer)).run(call("now"))
    assert (result.success, result.content, result.error) == (success, content, error)
    assert result.failure is (None if success else Failure.TOOL)


async def test_a_result_that_is_too_long_is_cut() -> None:
    long = gives({"type": "text", "text": "a" * 1000})
    [result] = await Round(server("clock", "now", call=long), max_result_chars=100).run(call("now"))
    assert isinstance(result.content, str)
    assert len(result.content) < 200
    assert "900 of 1,000 characters" in result.content
    assert result.success


async def test_an_error_that_is_too_long_is_cut_too_and_its_line_is_a_line() -> None:
    long = gives({"type": "text", "text": "a" * 100_000}, is_error=True)
    one = Round(server("clock", "now", call=long), max_result_chars=1000)
    [result] = await one.run(call("now"))
    assert len(str(result.content)) < 1200
    assert result.error is not None
    assert len(result.error) <= 1000
    assert (result.failure, result.success) == (Failure.TOOL, False)
    assert one.heard.of(ToolCallFinished)[0].result == result, "what is told is what the model reads"


async def test_the_line_of_an_error_is_one_line() -> None:
    dead = fails(ServerGone("s", "it was killed;\nit last said:\n  no memory"))
    [result] = await Round(server("s", "now", call=dead)).run(call("now"))
    assert result.error == "The server 's' is not available: it was killed; it last said: no memory"
    assert "\n" in str(result.content)


# --- calls that are not run -----------------------------------------------------------------------

UNKNOWN: list[tuple[str, list[str], str, list[str]]] = [
    ("a slip", ["get_weather", "get_time"], "get_wether", ["'get_wether'", "Did you mean 'get_weather'?"]),
    ("something else", ["get_weather", "get_time"], "xyzzy", ["'xyzzy'", "On offer are: get_time, get_weather."]),
    ("nothing there", [], "now", ["no tools are on offer"]),
    ("no name", ["now"], "", ["There is no tool ''"]),
]


@pytest.mark.parametrize(("tools", "name", "words"), [c[1:] for c in UNKNOWN], ids=[c[0] for c in UNKNOWN])
async def test_an_unknown_tool_is_answered_with_what_there_is(tools: list[str], name: str, words: list[str]) -> None:
    one = Round(server("clock", *tools))
    [result] = await one.run(call(name))
    assert (result.success, result.failure) == (False, Failure.UNKNOWN_TOOL)
    assert [word for word in words if word not in str(result.content)] == []
    assert one.heard[0] == ToolCallStarted(call(name), "", "")


async def test_with_hundreds_of_tools_not_all_are_listed() -> None:
    [result] = await Round(server("clock", *(f"tool_{at}" for at in range(500)))).run(call("xyzzy"))
    assert len(str(result.content)) < 1000


WRONG: list[tuple[str, ToolCallRequest, list[str]]] = [
    (
        "of the wrong type",
        call("add", count="many"),
        ['count: "many" is not of type "integer"', "count, unit (optional)"],
    ),
    ("missing", call("add", unit="m"), ['"count" is a required property', "count, unit (optional)"]),
    ("unreadable", ToolCallRequest("1", "add", {}, '{"count": '), ["not a JSON object", "count, unit (optional)"]),
    ("half a surrogate pair", call("add", count="\ud800"), ["not JSON"]),
]


@pytest.mark.parametrize(("wrong", "words"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
async def test_wrong_arguments_are_answered_with_what_was_expected(wrong: ToolCallRequest, words: list[str]) -> None:
    refusal = Refusal()
    asked: list[object] = []

    async def person(*about: object) -> Approval:
        asked.append(about)
        return Approval("once")

    one = Round(server("maths", tool_named("add", input_schema=STRICT), call=refusal), approve=person)
    [result] = await one.run(wrong)
    assert (result.success, result.failure) == (False, Failure.BAD_ARGUMENTS)
    assert [word for word in words if word not in str(result.content)] == []
    assert (refusal.reached, asked) == (False, []), "nobody is asked about a call that cannot be made"


async def test_a_tool_that_takes_nothing_says_so() -> None:
    schema = {"type": "object", "additionalProperties": False}
    [result] = await Round(server("clock", tool_named("now", input_schema=schema))).run(call("now", zone="UTC"))
    assert "Expected an empty JSON object." in str(result.content)


async def raises(*_: object) -> Approval:
    raise OSError("no terminal: secret")


async def declines(*_: object) -> Approval:
    return Approval("deny", "too dear")


async def declines_without_a_word(*_: object) -> Approval:
    return Approval("deny")


DENIED: list[tuple[str, Approver | None, Rules, str]] = [
    ("by a person", declines, Rules(), "The user did not allow this call: too dear."),
    ("by a person without a word", declines_without_a_word, Rules(), "The user did not allow this call."),
    ("by a rule", None, Rules(deny=("now",)), "forbids this tool"),
    ("by a rule that is asked before the person", declines, Rules(deny=("*",)), "forbids this tool"),
    ("for want of somebody to ask", raises, Rules(), "permission could not be asked for"),
]


@pytest.mark.parametrize(("approve", "rules", "words"), [c[1:] for c in DENIED], ids=[c[0] for c in DENIED])
async def test_what_is_denied_is_not_run_and_the_model_is_told(
    approve: Approver | None, rules: Rules, words: str
) -> None:
    refusal = Refusal()
    [result] = await Round(server("clock", "now", call=refusal), approve=approve, rules=rules).run(call("now"))
    assert (result.success, result.failure, refusal.reached) == (False, Failure.DENIED, False)
    assert words in str(result.content)
    assert "secret" not in str(result.content)


async def test_what_a_person_allows_is_run() -> None:
    async def allows(asked: ToolCallRequest, tool: ToolSpec, name: str) -> Approval:
        assert (asked, tool.tool, name) == (call("now"), "now", "clock")
        return Approval("once")

    [result] = await Round(server("clock", "now"), approve=allows).run(call("now"))
    assert result.success


# --- side by side ---------------------------------------------------------------------------------


async def test_results_stand_in_the_order_of_the_calls_whichever_ended_first() -> None:
    last_done = anyio.Event()

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        if tool == "last":
            last_done.set()
        else:
            await last_done.wait()
        return text_result(tool)

    one = Round(server("s", "first", "last", call=answer))
    with anyio.fail_after(20):
        results = await one.run(call("first", id_="1"), call("last", id_="2"))
    assert [(result.tool_call_id, result.content) for result in results] == [("1", "first"), ("2", "last")]
    assert [event.result.tool_call_id for event in one.heard.of(ToolCallFinished)] == ["2", "1"]


@pytest.mark.parametrize(("calls", "max_parallel"), [(8, 8), (7, 3), (5, 1)])
async def test_as_many_calls_as_may_be_run_at_once_and_never_more(calls: int, max_parallel: int) -> None:
    inside, most = 0, 0
    left = calls
    full = anyio.Event()

    async def meet() -> None:
        nonlocal inside, most, left
        inside += 1
        most = max(most, inside)
        if inside == min(max_parallel, left):
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        inside, left = inside - 1, left - 1

    one = Round(server("s", "meet", call=runs(meet)), max_parallel=max_parallel)
    with anyio.fail_after(20):
        results = await one.run(*(call("meet", id_=str(at)) for at in range(calls)))
    assert [result.tool_call_id for result in results] == [str(at) for at in range(calls)]
    assert most == min(calls, max_parallel)


FAULTS: list[tuple[str, Exception, Failure, str]] = [
    ("gone", ServerGone("bad", "it was killed"), Failure.SERVER, "The server 'bad' is not available: it was killed"),
    ("refused", ServerError("bad", "no such tool"), Failure.SERVER, "The call failed: no such tool"),
    ("a mistake of our own", KeyError("secret"), Failure.SERVER, "KeyError"),
    ("several at once", ExceptionGroup("secret", [ValueError("secret")]), Failure.SERVER, "ExceptionGroup"),
]


@pytest.mark.parametrize(("error", "failure", "words"), [c[1:] for c in FAULTS], ids=[c[0] for c in FAULTS])
async def test_a_call_that_fails_does_not_take_the_others_with_it(
    error: Exception, failure: Failure, words: str
) -> None:
    others = anyio.Event()
    one = Round(server("good", "slow", call=runs(others.wait)), server("bad", "broken", call=fails(error)))

    async def let_the_other_go_on() -> None:
        await anyio.wait_all_tasks_blocked()
        others.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(let_the_other_go_on)
            slow, broken = await one.run(call("slow", id_="1"), call("broken", id_="2"))
    assert slow.content == "done"
    assert (broken.success, broken.failure) == (False, failure)
    assert words in str(broken.content)
    assert "secret" not in str(broken.content)


async def test_begin_and_end_are_told_of_every_call_whatever_came_of_it() -> None:
    one = Round(
        server("good", "now", tool_named("add", input_schema=STRICT)),
        server("bad", "broken", call=fails(ServerGone("bad", "it was killed"))),
        rules=Rules(deny=("now",)),
    )
    names = ["now", "add", "broken", "nowhere"]
    await one.run(*(call(name, id_=name) for name in names))
    assert sorted(event.call.id for event in one.heard.of(ToolCallStarted)) == sorted(names)
    assert sorted(event.result.tool_call_id for event in one.heard.of(ToolCallFinished)) == sorted(names)


async def test_the_same_call_twice_has_two_results() -> None:
    results = await Round(server("s", "now")).run(call("now", id_="1"), call("now", id_="2"))
    assert [result.tool_call_id for result in results] == ["1", "2"]


async def test_cancelling_the_round_cancels_its_calls_at_their_servers() -> None:
    running: list[int] = []
    ended: list[int] = []

    async def hang() -> None:
        running.append(1)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    one = Round(server("s", "hang", call=runs(hang)))
    async with anyio.create_task_group() as group:
        group.start_soon(one.run, call("hang", id_="1"), call("hang", id_="2"))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert (running, ended) == ([1, 1], [1, 1])


# --- progress -------------------------------------------------------------------------------------


def reports(*steps: tuple[float, float | None, str | None], pause: float = 0) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        for step in steps:
            await anyio.sleep(pause)
            await on_progress(*step)
        return text_result("done")

    return answer


async def test_progress_is_told_between_begin_and_end() -> None:
    one = Round(server("s", "work", call=reports((1, 2, "half"), (2, 2, None))))
    await one.run(call("work"))
    assert one.heard[1:-1] == [ToolCallProgress("1", 1, 2, "half"), ToolCallProgress("1", 2, 2, None)]


async def test_progress_that_is_no_number_is_not_told_as_one() -> None:
    one = Round(server("s", "work", call=reports((math.nan, math.inf, "half"), (1, math.nan, None))))
    await one.run(call("work"))
    told = one.heard.of(ToolCallProgress)
    assert all(math.isfinite(event.progress) for event in told)
    assert {event.total for event in told} == {None}
    assert "half" in [event.message for event in told]


async def test_progress_that_comes_when_the_call_is_over_is_not_told() -> None:
    kept: list[OnProgress] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        kept.append(on_progress)
        return text_result("done")

    one = Round(server("s", "work", call=answer))
    await one.run(call("work"))
    await kept[0](1, 2, "late")
    assert one.heard.of(ToolCallProgress) == []


# --- time -----------------------------------------------------------------------------------------


def sleeps(seconds: float) -> Behaviour:
    return runs(lambda: anyio.sleep(seconds))


def slow_server(tool_timeout: float | None, seconds: float) -> Connection:
    settings = ServerSettings("s", Transport.STDIO, "x", tool_timeout=tool_timeout)
    return server("s", "work", settings=settings, call=sleeps(seconds))


TIMES: list[tuple[str, Connection, bool]] = [
    ("in time", server("s", "work", call=sleeps(9)), True),
    ("too late", server("s", "work", call=sleeps(11)), False),
    ("in time for this server", slow_server(20, 19), True),
    ("too late for this server", slow_server(5, 6), False),
    ("a server without a limit of its own", slow_server(None, 11), False),
]


@virtual_time
@pytest.mark.parametrize(("slow", "in_time"), [c[1:] for c in TIMES], ids=[c[0] for c in TIMES])
async def test_a_call_has_the_time_of_its_server_or_else_of_all(slow: Connection, in_time: bool) -> None:
    [result] = await Round(slow, tool_timeout=10).run(call("work"))
    assert result.success == in_time
    assert result.failure is (None if in_time else Failure.TIMEOUT)


@virtual_time
async def test_a_call_that_takes_too_long_is_cancelled_at_its_server_and_the_others_go_on() -> None:
    ended: list[float] = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())

    began = anyio.current_time()
    one = Round(server("s", "hang", call=runs(hang)), server("t", "work", call=sleeps(9)), tool_timeout=10)
    late, good = await one.run(call("hang", id_="1"), call("work", id_="2"))
    assert (late.failure, late.content) == (Failure.TIMEOUT, "The tool gave no result within 10 seconds.")
    assert good.success
    assert ended == [pytest.approx(began + 10)]


@virtual_time
async def test_progress_starts_the_time_of_a_call_anew() -> None:
    one = Round(server("s", "work", call=reports(*[(1, None, None)] * 20, pause=9)), tool_timeout=10)
    [result] = await one.run(call("work"))
    assert result.success


@virtual_time
async def test_progress_without_end_has_one() -> None:
    began = anyio.current_time()
    endless = reports(*[(1, None, None)] * 1000, pause=9)
    [result] = await Round(server("s", "work", call=endless), tool_timeout=10, tool_timeout_max=100).run(call("work"))
    assert result.failure is Failure.TIMEOUT
    assert anyio.current_time() - began == pytest.approx(100)


@virtual_time
async def test_progress_of_one_call_gives_no_time_to_another() -> None:
    busy = server("s", "busy", call=reports(*[(1, None, None)] * 10, pause=5))
    lazy = server("t", "lazy", call=sleeps(11))
    first, second = await Round(busy, lazy, tool_timeout=10).run(call("busy", id_="1"), call("lazy", id_="2"))
    assert (first.success, second.failure) == (True, Failure.TIMEOUT)


@virtual_time
async def test_when_the_turns_time_is_over_its_calls_are_stopped_and_what_was_done_is_kept() -> None:
    ended: list[float] = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())

    began = anyio.current_time()
    one = Round(server("s", "hang", call=runs(hang)), server("t", "work", call=sleeps(3)))
    late, good = await one.run(call("hang", id_="1"), call("work", id_="2"), seconds=5)
    assert (late.failure, late.content) == (Failure.TIMEOUT, "Stopped: the time for this turn is over.")
    assert good.content == "done"
    assert ended == [pytest.approx(began + 5)]
    assert len(one.heard.of(ToolCallFinished)) == 2


@virtual_time
async def test_no_call_is_begun_when_the_turns_time_is_over() -> None:
    begun: list[float] = []

    async def hang() -> None:
        begun.append(anyio.current_time())
        await anyio.sleep_forever()

    one = Round(server("s", "hang", call=runs(hang)), max_parallel=2)
    results = await one.run(*(call("hang", id_=str(at)) for at in range(5)), seconds=5)
    assert [result.failure for result in results] == [Failure.TIMEOUT] * 5
    assert len(begun) == 2


@virtual_time
async def test_neither_the_turn_nor_the_tool_pays_for_the_time_a_person_takes() -> None:
    async def thinks(*_: object) -> Approval:
        await anyio.sleep(500)
        return Approval("once")

    one = Round(server("s", "work", call=sleeps(4)), approve=thinks, tool_timeout=5)
    results = await one.run(call("work", id_="1"), call("work", id_="2"), seconds=10)
    assert [result.success for result in results] == [True, True]


@virtual_time
async def test_behind_a_persons_answer_the_turns_time_goes_on() -> None:
    async def thinks(*_: object) -> Approval:
        await anyio.sleep(500)
        return Approval("once")

    began = anyio.current_time()
    one = Round(server("s", "work", call=runs(anyio.sleep_forever)), approve=thinks, tool_timeout=900)
    [result] = await one.run(call("work"), seconds=10)
    assert result.failure is Failure.TIMEOUT
    assert anyio.current_time() - began == pytest.approx(510)


@virtual_time
async def test_a_call_that_runs_while_a_person_thinks_about_another_has_its_own_time_all_the_same() -> None:
    async def thinks(asked: ToolCallRequest, tool: ToolSpec, name: str) -> Approval:
        await anyio.sleep(500)
        return Approval("deny")

    one = Round(
        server("s", "work", call=runs(anyio.sleep_forever)),
        server("t", "other"),
        approve=thinks,
        rules=Rules(allow=("work",)),
        tool_timeout=5,
    )
    began = anyio.current_time()
    late, denied = await one.run(call("work", id_="1"), call("other", id_="2"), seconds=10)
    assert (late.failure, denied.failure) == (Failure.TIMEOUT, Failure.DENIED)
    finished = one.heard.of(ToolCallFinished)
    assert [event.result.tool_call_id for event in finished] == ["1", "2"]
    assert anyio.current_time() - began == pytest.approx(500)
