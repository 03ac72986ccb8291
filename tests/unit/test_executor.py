"""One call: found, checked, allowed, run, and never an exception."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from mcp_types import CallToolResult

from dial_client.errors import ServerGone
from dial_client.messages.message import Failure, ImagePart, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.runtime.deadline import Deadline
from dial_client.servers.session_calls import OnProgress
from dial_client.settings.policy_config import policy_from
from dial_client.tools.approval import Approval, ApprovalContext, Approver, PolicyRules
from dial_client.turn_data.events import ToolCallFinished, ToolCallStarted
from tests.support.fakes import Behaviour, server, text_result, tool_named
from tests.support.tool_rounds import STRICT, Round, call, fails

pytestmark = pytest.mark.anyio


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


async def test_one_call_alone_can_be_run_too() -> None:
    calls = Round(server("clock", "now"))
    result = await calls.executor.execute(call("now"), calls.heard.emit, Deadline(60))
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
    calls = Round(server("clock", "now", call=long), max_result_chars=1000)
    [result] = await calls.run(call("now"))
    assert len(str(result.content)) < 1200
    assert result.error is not None
    assert len(result.error) <= 1000
    assert (result.failure, result.success) == (Failure.TOOL, False)
    assert calls.heard.of(ToolCallFinished)[0].result == result, "what is told is what the model reads"


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
    calls = Round(server("clock", *tools))
    [result] = await calls.run(call(name))
    assert (result.success, result.failure) == (False, Failure.UNKNOWN_TOOL)
    assert [word for word in words if word not in str(result.content)] == []
    assert calls.heard[0] == ToolCallStarted(call(name), "", "")


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

    calls = Round(server("maths", tool_named("add", input_schema=STRICT), call=refusal), approve=person)
    [result] = await calls.run(wrong)
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


async def agrees_with_a_bool(*_: object) -> Any:
    return True


def agrees_at_once(*_: object) -> Any:
    return Approval("once")


async def declines_without_a_word(*_: object) -> Approval:
    return Approval("deny")


DENIED: list[tuple[str, Approver | None, PolicyRules, str]] = [
    ("by a person", declines, PolicyRules(), "The user did not allow this call: too dear."),
    ("by a person without a word", declines_without_a_word, PolicyRules(), "The user did not allow this call."),
    ("by a rule", None, PolicyRules(deny=("now",)), "forbids this tool"),
    ("by a rule that is asked before the person", declines, PolicyRules(deny=("*",)), "forbids this tool"),
    (
        "for want of somebody to ask",
        raises,
        PolicyRules(),
        "not be asked for, because the approver raised OSError.",
    ),
    ("for want of an answer", agrees_with_a_bool, PolicyRules(), "the approver returned bool in place of an Approval."),
    ("for want of an approver", agrees_at_once, PolicyRules(), "the approver is no `async def` function."),
]


@pytest.mark.parametrize(("approve", "rules", "words"), [c[1:] for c in DENIED], ids=[c[0] for c in DENIED])
async def test_what_is_denied_is_not_run_and_the_model_reads_that(
    approve: Approver | None, rules: PolicyRules, words: str
) -> None:
    refusal = Refusal()
    [result] = await Round(server("clock", "now", call=refusal), approve=approve, rules=rules).run(call("now"))
    assert (result.success, result.failure, refusal.reached) == (False, Failure.DENIED, False)
    assert words in str(result.content)
    assert "secret" not in str(result.content)


async def test_what_a_person_allows_is_run() -> None:
    async def allows(asked: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        assert (asked, tool.tool, context.server) == (call("now"), "now", "clock")
        return Approval("once")

    [result] = await Round(server("clock", "now"), approve=allows).run(call("now"))
    assert result.success


WRITE = {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}}


def approves_with(**arguments: Any) -> Approver:
    async def approve(*_: object) -> Approval:
        return Approval("once", arguments=arguments)

    return approve


async def test_arguments_that_a_person_changed_go_to_the_tool_and_the_model_reads_that() -> None:
    received: list[Mapping[str, Any]] = []

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallToolResult:
        received.append(arguments)
        return text_result("done")

    takes_text = server("files", tool_named("write", input_schema=WRITE), call=answer)
    for arguments, note in {
        ("b", 2): '{"text": "b", "count": 2}]',
        ("b", 1): '{"text": "b"}, and the other arguments as they were]',
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
    refusal = Refusal()
    writer = server("files", tool_named("write", input_schema=WRITE), call=refusal)
    [unfit] = await Round(writer, approve=approves_with(text=["no"])).run(call("write", text="a", count=1))
    forbidding = PolicyRules(policy=policy_from([{"deny": "files/write", "arguments": {"text": "b"}}]))
    denied = Round(writer, approve=approves_with(text="b", count=1), rules=forbidding)
    [forbidden] = await denied.run(call("write", text="a", count=1))
    assert (unfit.failure, forbidden.failure, refusal.reached) == (Failure.BAD_ARGUMENTS, Failure.DENIED, False)
