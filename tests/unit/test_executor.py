"""Execution of one tool call: lookup, validation, approval and run; failures are values, never exceptions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import CallToolResult

from tests.inner import (
    Approval,
    ApprovalContext,
    Approver,
    Deadline,
    Decision,
    Failure,
    ImagePart,
    OnCallProgress,
    PolicyRules,
    ServerGone,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    ToolSpec,
    load_policy,
)
from tests.support.fakes import Behaviour, server, text_result, tool_named
from tests.support.tool_rounds import STRICT, Round, call, fails

pytestmark = pytest.mark.anyio


def returns_content(*blocks: dict[str, Any], is_error: bool = False, structured: Any = None) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        about = {"content": blocks, "isError": is_error, "structuredContent": structured}
        return CallToolResult.model_validate(about)

    return answer


class UnreachedServer:
    """A server that must not be reached."""

    def __init__(self) -> None:
        self.reached = False

    async def __call__(self, *_: object) -> CallToolResult:
        self.reached = True
        return text_result("ran")


# --- one call -------------------------------------------------------------------------------------


async def test_a_call_is_sent_to_its_server_with_the_tools_own_name() -> None:
    seen: list[object] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        seen.extend((tool, arguments))
        return text_result("noon")

    calls = Round(server("clock", "time.now", call=answer))
    began = time.monotonic()
    [result] = await calls.run(call("time_now", zone="UTC"))
    most = time.monotonic() - began
    assert seen == ["time.now", {"zone": "UTC"}]
    assert result == ToolCallResult("1", success=True, content="noon")
    started, finished = calls.heard
    assert started == ToolCallStarted(call("time_now", zone="UTC"), "clock", "time.now")
    assert isinstance(finished, ToolCallFinished)
    assert (finished.result, finished.server) == (result, "clock")
    assert 0 <= finished.duration <= most


async def test_a_single_call_can_be_executed() -> None:
    calls = Round(server("clock", "now"))
    result = await calls.executor.execute(call("now"), calls.heard.emit, Deadline(60))
    assert result.content == "now ran"


async def test_a_round_without_calls_has_no_results() -> None:
    assert await Round().run() == ()


CONTENTS: list[tuple[str, Behaviour, bool, Any, str | None]] = [
    ("text", returns_content({"type": "text", "text": "noon"}), True, "noon", None),
    ("structured only", returns_content(structured={"a": 1}), True, '{"a": 1}', None),
    ("no content", returns_content(), True, "(no output)", None),
    (
        "an image",
        returns_content({"type": "image", "data": "AA==", "mimeType": "image/png"}),
        True,
        (ImagePart("AA==", "image/png"),),
        None,
    ),
    (
        "audio",
        returns_content({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}),
        True,
        "[audio, audio/wav, 3 bytes: it cannot be shown here]",
        None,
    ),
    (
        "an error",
        returns_content({"type": "text", "text": "no such zone\nat line 3"}, is_error=True),
        False,
        "no such zone\nat line 3",
        "no such zone",
    ),
    (
        "an error without text",
        returns_content(is_error=True),
        False,
        "The tool failed without saying why.",
        "The tool failed without saying why.",
    ),
    (
        "an error with blank text",
        returns_content({"type": "text", "text": " \n"}, is_error=True),
        False,
        "The tool failed without saying why.",
        "The tool failed without saying why.",
    ),
    (
        "an error with structured content only",
        returns_content(is_error=True, structured={"code": 5}),
        False,
        '{"code": 5}',
        '{"code": 5}',
    ),
    (
        "an error with an image",
        returns_content({"type": "image", "data": "AA==", "mimeType": "image/png"}, is_error=True),
        False,
        (ImagePart("AA==", "image/png"),),
        "The tool failed without saying why.",
    ),
]


@pytest.mark.parametrize(
    ("answer", "success", "content", "error"), [c[1:] for c in CONTENTS], ids=[c[0] for c in CONTENTS]
)
async def test_the_content_of_a_tool_becomes_the_result(
    answer: Behaviour, success: bool, content: Any, error: str | None
) -> None:
    [result] = await Round(server("clock", "now", call=answer)).run(call("now"))
    assert (result.success, result.content, result.error) == (success, content, error)
    assert result.failure is (None if success else Failure.TOOL)


async def test_a_result_that_is_too_long_is_cut() -> None:
    long = returns_content({"type": "text", "text": "a" * 1000})
    [result] = await Round(server("clock", "now", call=long), max_result_chars=100).run(call("now"))
    assert isinstance(result.content, str)
    assert len(result.content) < 200
    assert "900 of 1,000 characters" in result.content
    assert result.success


async def test_an_error_that_is_too_long_is_cut_and_so_is_its_summary() -> None:
    long = returns_content({"type": "text", "text": "a" * 100_000}, is_error=True)
    calls = Round(server("clock", "now", call=long), max_result_chars=1000)
    [result] = await calls.run(call("now"))
    assert len(str(result.content)) < 1200
    assert result.error is not None
    assert len(result.error) <= 1000
    assert (result.failure, result.success) == (Failure.TOOL, False)
    assert calls.heard.of(ToolCallFinished)[0].result == result, "the event has the result that the model reads"


async def test_the_summary_of_an_error_is_one_line() -> None:
    dead = fails(ServerGone("s", "it was killed;\nit last said:\n  no memory"))
    [result] = await Round(server("s", "now", call=dead)).run(call("now"))
    assert result.error == "The server 's' is not available: it was killed; it last said: no memory"
    assert "\n" in str(result.content)


# --- calls that are not run -----------------------------------------------------------------------

UNKNOWN: list[tuple[str, list[str], str, list[str]]] = [
    ("a misspelled name", ["get_weather", "get_time"], "get_wether", ["'get_wether'", "Did you mean 'get_weather'?"]),
    ("an unknown name", ["get_weather", "get_time"], "xyzzy", ["'xyzzy'", "Available are: get_time, get_weather."]),
    ("no tools", [], "now", ["no tools are available"]),
    ("no name", ["now"], "", ["There is no tool ''"]),
]


@pytest.mark.parametrize(("tools", "name", "words"), [c[1:] for c in UNKNOWN], ids=[c[0] for c in UNKNOWN])
async def test_the_result_for_an_unknown_tool_names_the_offered_tools(
    tools: list[str], name: str, words: list[str]
) -> None:
    calls = Round(server("clock", *tools))
    [result] = await calls.run(call(name))
    assert (result.success, result.failure) == (False, Failure.UNKNOWN_TOOL)
    assert [word for word in words if word not in str(result.content)] == []
    assert calls.heard[0] == ToolCallStarted(call(name), "", "")


async def test_the_result_for_an_unknown_tool_does_not_list_hundreds_of_tools() -> None:
    [result] = await Round(server("clock", *(f"tool_{at}" for at in range(500)))).run(call("xyzzy"))
    assert len(str(result.content)) < 1000


WRONG: list[tuple[str, ToolCallRequest, list[str]]] = [
    ("wrong type", call("add", count="many"), ['count: "many" is not of type "integer"', "count, unit (optional)"]),
    ("missing", call("add", unit="m"), ['"count" is a required property', "count, unit (optional)"]),
    ("unreadable", ToolCallRequest("1", "add", {}, '{"count": '), ["not a JSON object", "count, unit (optional)"]),
    ("a lone surrogate", call("add", count="\ud800"), ["not JSON"]),
]


@pytest.mark.parametrize(("wrong", "words"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
async def test_the_result_for_wrong_arguments_names_the_expected_arguments(
    wrong: ToolCallRequest, words: list[str]
) -> None:
    unreached = UnreachedServer()
    asked: list[object] = []

    async def person(*about: object) -> Approval:
        asked.append(about)
        return Approval("once")

    calls = Round(server("maths", tool_named("add", input_schema=STRICT), call=unreached), approve=person)
    [result] = await calls.run(wrong)
    assert (result.success, result.failure) == (False, Failure.BAD_ARGUMENTS)
    assert [word for word in words if word not in str(result.content)] == []
    assert (unreached.reached, asked) == (False, []), "no approval is requested for an invalid call"


async def test_the_result_for_a_tool_without_parameters_says_that_no_arguments_are_expected() -> None:
    schema = {"type": "object", "additionalProperties": False}
    [result] = await Round(server("clock", tool_named("now", input_schema=schema))).run(call("now", zone="UTC"))
    assert "Expected an empty JSON object." in str(result.content)


async def raises(*_: object) -> Approval:
    raise OSError("no terminal: secret")


async def declines(*_: object) -> Approval:
    return Approval("deny", "too dear")


async def returns_true(*_: object) -> bool:
    return True


async def returns_false(*_: object) -> bool:
    return False


async def returns_yes(*_: object) -> str:
    return "yes"


async def returns_nothing(*_: object) -> Any:
    return None


def is_not_async(*_: object) -> Any:
    return Approval("once")


async def declines_without_a_reason(*_: object) -> Approval:
    return Approval("deny")


DENIED: list[tuple[str, Approver | None, PolicyRules, str]] = [
    ("by a person", declines, PolicyRules(), "The user did not allow this call: too dear."),
    ("by a person without a reason", declines_without_a_reason, PolicyRules(), "The user did not allow this call."),
    ("by a rule", None, PolicyRules(deny=("now",)), "forbids this tool"),
    ("by a rule that precedes the person", declines, PolicyRules(deny=("*",)), "forbids this tool"),
    ("by an approver that raises", raises, PolicyRules(), "not be asked for, because the approver raised OSError."),
    ("by False", returns_false, PolicyRules(), "The user did not allow this call."),
    (
        "by an approver without a value",
        returns_nothing,
        PolicyRules(),
        'the approver returned None: expected Approval("once"), Approval("deny", "the reason"), True or False.',
    ),
    (
        "by an approver with another text",
        returns_yes,
        PolicyRules(),
        'the approver returned \'yes\': expected Approval("once"), Approval("deny", "the reason"), True or False.',
    ),
    ("by an approver that is not async", is_not_async, PolicyRules(), "the approver is not an `async def` function."),
]


@pytest.mark.parametrize(("approve", "rules", "words"), [c[1:] for c in DENIED], ids=[c[0] for c in DENIED])
async def test_a_denied_call_is_not_run_and_the_model_reads_the_reason(
    approve: Approver | None, rules: PolicyRules, words: str
) -> None:
    unreached = UnreachedServer()
    [result] = await Round(server("clock", "now", call=unreached), approve=approve, rules=rules).run(call("now"))
    assert (result.success, result.failure, unreached.reached) == (False, Failure.DENIED, False)
    assert words in str(result.content)
    assert "secret" not in str(result.content)


async def test_a_call_that_a_person_allows_is_run() -> None:
    async def allows(asked: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        assert (asked, tool.tool, context.server) == (call("now"), "now", "clock")
        return Approval("once")

    [result] = await Round(server("clock", "now"), approve=allows).run(call("now"))
    assert result.success


@pytest.mark.parametrize("answer", [True, "once", Decision.ONCE])
async def test_true_and_a_decision_alone_allow_one_call(answer: bool | str) -> None:
    asked: list[str] = []

    async def allows(call: ToolCallRequest, *_: object) -> bool | str:
        asked.append(call.name)
        return answer

    both = await Round(server("clock", "now"), approve=allows).run(call("now"), call("now"))
    assert [result.success for result in both] == [True, True]
    assert asked == ["now", "now"]


WRITE = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}


def approves_with(**arguments: Any) -> Approver:
    async def approve(*_: object) -> Approval:
        return Approval("once", arguments=arguments)

    return approve


async def test_arguments_changed_by_a_person_are_sent_to_the_tool_and_reported_to_the_model() -> None:
    received: list[Mapping[str, Any]] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        received.append(arguments)
        return text_result("done")

    takes_text = server("files", tool_named("write", input_schema=WRITE), call=answer)
    for arguments, note in {
        ("b", 2): '{"text": "b", "count": 2}]',
        ("b", 1): '{"text": "b"}, and the other arguments unchanged]',
        ("a", 1): "",
    }.items():
        text, count = arguments
        person = Round(takes_text, approve=approves_with(text=text, count=str(count)))
        [result] = await person.run(call("write", text="a", count=1))
        finished = next(event for event in person.heard if isinstance(event, ToolCallFinished))
        assert finished.changed_arguments == ({"text": text, "count": count} if note else None)
        assert received.pop() == {"text": text, "count": count}
        prefix = f"[The user changed the arguments before the call. It ran with: {note}\n" if note else ""
        assert result.content == f"{prefix}done"


async def test_changed_arguments_are_checked_like_those_of_the_model() -> None:
    unreached = UnreachedServer()
    writer = server("files", tool_named("write", input_schema=WRITE), call=unreached)
    [unfit] = await Round(writer, approve=approves_with(text=["no"])).run(call("write", text="a", count=1))
    forbidding = PolicyRules(policy=load_policy([{"deny": "files/write", "arguments": {"text": "b"}}]))
    denied = Round(writer, approve=approves_with(text="b", count=1), rules=forbidding)
    [forbidden] = await denied.run(call("write", text="a", count=1))
    assert (unfit.failure, forbidden.failure, unreached.reached) == (Failure.BAD_ARGUMENTS, Failure.DENIED, False)


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{}{"query": "x"}', {"query": "x"}),
        ('{"query": "x"}{"query": "x"}', {"query": "x"}),
        ('{"query": "x"}\n{"query": "x"}', {"query": "x"}),
        ('{"query": "d"}{"query": "de"}{"query": "delhi", "limit": 5}', {"query": "delhi", "limit": 5}),
        ('{"query": "x"}{}', {"query": "x"}),
        ('{"query": "x"}{"other": 1}', {"query": "x"}),
        ('{}{"query": "x", "limit": "5"}', {"query": "x", "limit": 5}),
        ('{"query": "x"}{"query": "y"', None),
        ('{"query": "x"} and more', None),
        ('{"other": 1}{"other": 2}', None),
    ],
)
async def test_the_last_whole_object_that_fits_the_schema_is_sent(written: str, sent: Any) -> None:
    seen: list[Any] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        seen.append(dict(arguments))
        return text_result("ran")

    properties = {"query": {"type": "string"}, "limit": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["query"], "additionalProperties": False}
    searching = tool_named("search", input_schema=schema)
    round_ = Round(server("web", searching, call=answer))
    (result,) = await round_.run(ToolCallRequest("1", "search", {}, written))

    assert seen == ([] if sent is None else [sent])
    assert result.success is (sent is not None)
