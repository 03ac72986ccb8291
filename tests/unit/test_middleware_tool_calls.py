"""Middleware around tool calls: changed, answered, refused and failed calls."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from typing_extensions import override

from dial_client import (
    Approval,
    ApprovalContext,
    Decision,
    Finished,
    Limits,
    StopReason,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallResult,
    ToolCallStarted,
    ToolSpec,
    Turn,
)
from dial_client.extend import Failure, Middleware, ToolCall, refuse
from tests.support.fakes import virtual_time
from tests.support.middleware_clients import DOUBLE, Auditor, NextToolCall, calling, open_client, read_events

pytestmark = pytest.mark.anyio


class Incremented(Middleware):
    async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
        return await call_next(call.with_arguments({"number": call.arguments["number"] + 1}))


async def test_a_changed_call_is_approved_audited_and_run_as_changed() -> None:
    asked: list[object] = []
    audit = Auditor()

    async def approve(call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(dict(call.arguments))
        return Approval(Decision.ONCE)

    dial, model, tools = open_client([Incremented()], approve=approve, audit=audit)
    async with dial:
        turn = await dial.run("go on")
    assert (asked, tools.numbers) == ([{"number": 5}], [5])
    decision, ended = audit.entries
    assert (decision.event, decision.decision, decision.arguments) == ("decision", "allowed", {"number": 5})
    assert (ended.event, ended.outcome) == ("call", "ok")
    assert [record.call.arguments for record in turn.tool_calls] == [{"number": 4}], "the model's own call is kept"
    assert [record.changed_arguments for record in turn.tool_calls] == [{"number": 5}]
    assert model.requests[1].messages[-1].text == "10"


async def test_a_changed_call_is_validated() -> None:
    class Misled(Middleware):
        async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
            return await call_next(call.with_arguments({"number": "many"}))

    dial, _, tools = open_client([Misled()])
    async with dial:
        result = await dial.call("double", {"number": 4})
    assert (result.failure, tools.numbers) == (Failure.BAD_ARGUMENTS, [])


async def test_a_redirected_call_is_approved_and_recorded_as_a_call_of_the_new_tool() -> None:
    class Redirected(Middleware):
        async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
            return await call_next(replace(call, request=ToolCallRequest("other", "half", {"number": 4})))

    def half(number: int) -> float:
        return number / 2

    asked: list[tuple[str, str]] = []
    audit = Auditor()

    async def approve(call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append((call.name, f"{spec.server}/{spec.tool}"))
        return Approval(Decision.ONCE)

    dial, _, _ = open_client([Redirected()], approve=approve, audit=audit)
    dial.tool(half)
    async with dial:
        events = [event async for event in dial.stream("go on")]
    turn = events[-1].turn if isinstance(events[-1], Finished) else None
    assert turn is not None
    [record] = turn.tool_calls
    assert (record.result.content, record.result.tool_call_id) == ("2.0", record.call.id)
    assert asked == [("half", "functions/half")]
    assert {(entry.server, entry.tool) for entry in audit.entries} == {("functions", "half")}
    assert (record.server, record.tool, record.call.name) == ("functions", "half", "double")
    assert Turn.from_dict(turn.to_dict()) == turn
    assert record.to_cells()[:2] == ("functions/half", '{"number": 4}')
    [end] = [event for event in events if isinstance(event, ToolCallFinished)]
    assert (end.server, end.changed_tool) == ("functions", "half")


class Cache(Middleware):
    def __init__(self) -> None:
        self.results: dict[str, ToolCallResult] = {}

    async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
        key = f"{call.name} {sorted(call.arguments.items())}"
        if key not in self.results:
            self.results[key] = await call_next(call)
        return self.results[key]


async def test_a_middleware_can_answer_a_call_without_running_the_tool() -> None:
    audit = Auditor()
    dial, model, tools = open_client([Cache()], DOUBLE, "8", DOUBLE, "8 again", audit=audit)
    async with dial:
        await dial.run("go on")
        audit.entries.clear()
        events = await read_events(dial)
    assert tools.numbers == [4]
    assert model.requests[3].messages[-1].text == "8"
    [started] = [event for event in events if isinstance(event, ToolCallStarted)]
    [ended] = [event for event in events if isinstance(event, ToolCallFinished)]
    assert ended.result.tool_call_id == started.call.id
    assert [(entry.event, entry.decided_by, entry.outcome) for entry in audit.entries] == [
        ("decision", "middleware", ""),
        ("call", "", "ok"),
    ]


class Closed(Middleware):
    @override
    async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
        refuse("the shop is closed")


async def test_a_refused_call_is_a_result_with_the_reason() -> None:
    audit, seen = Auditor(), list[ToolCallResult]()

    class Watch(Middleware):
        async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
            seen.append(await call_next(call))
            return seen[-1]

    dial, model, tools = open_client([Watch(), Closed()], audit=audit)
    async with dial:
        turn = await dial.run("go on")
    assert tools.numbers == []
    assert model.requests[1].messages[-1].text == "Not run: the shop is closed"
    assert (turn.tool_calls[0].denied, turn.text) == (True, "It is 8.")
    assert [result.failure for result in seen] == [Failure.DENIED], "an outer middleware sees the refusal as a result"
    assert [(entry.decision, entry.decided_by) for entry in audit.entries][:1] == [("denied", "middleware")]


async def test_a_task_group_in_a_middleware_does_not_hide_a_refusal() -> None:
    class Grouped(Middleware):
        async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
            async with anyio.create_task_group():
                refuse("the shop is closed")
            return await call_next(call)

    dial, model, _ = open_client([Grouped()])
    async with dial:
        await dial.run("go on")
    assert model.requests[1].messages[-1].text == "Not run: the shop is closed"


class Broken(Middleware):
    async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
        if call.arguments["number"] == 4:
            raise KeyError("secret detail")
        return await call_next(call)


async def test_an_exception_of_a_middleware_fails_only_its_call_and_names_the_middleware() -> None:
    both = {"tool_calls": [*DOUBLE["tool_calls"], *calling("double", number=5)["tool_calls"]]}
    dial, model, tools = open_client([Broken()], both, "Only one.")
    async with dial:
        turn = await dial.run("go on")
    assert tools.numbers == [5]
    assert [message.text for message in model.requests[1].messages[-2:]] == [
        "The call failed: the middleware Broken raised KeyError.",
        "10",
    ]
    assert turn.stop_reason is StopReason.ANSWERED


async def test_a_middleware_that_returns_none_is_named_in_the_error() -> None:
    class Forgetful(Middleware):
        async def around_tool_call(  # type: ignore[return]  # the missing return is the test
            self, call: ToolCall, call_next: NextToolCall
        ) -> ToolCallResult:
            await call_next(call)

    dial, _, _ = open_client([Forgetful()])
    async with dial:
        result = await dial.call("double", {"number": 4})
    assert result.error == "The call failed: the middleware Forgetful returned NoneType, not a ToolCallResult."


@virtual_time
async def test_the_timeout_of_a_turn_applies_to_a_middleware() -> None:
    class Slow(Middleware):
        async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
            await anyio.sleep_forever()
            return await call_next(call)

    dial, _, tools = open_client([Slow()], limits=Limits(timeout=0.05))
    async with dial:
        turn = await dial.run("go on")
    assert (turn.stop_reason, tools.numbers) == (StopReason.TIMEOUT, [])
    assert turn.tool_calls[0].result.failure is Failure.TIMEOUT
