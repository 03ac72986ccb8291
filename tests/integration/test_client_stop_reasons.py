"""Turns that end early: at a limit, by timeout, by a model failure, by leaving the stream, or by cancellation."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import (
    Approval,
    DialClient,
    LimitReached,
    Limits,
    ProviderError,
    Role,
    StopReason,
    TextDelta,
    ToolCallRequest,
    ToolCallStarted,
    ToolSpec,
)
from dial_client.testing import ScriptedProvider
from tests.inner import ApprovalContext, Delta, ModelRequest
from tests.support.clients import ADD, ASK, calculator, call, client
from tests.support.fakes import virtual_time

pytestmark = pytest.mark.anyio


async def test_a_model_that_always_calls_tools_answers_at_max_depth() -> None:
    class Caller(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            base = "What I have: 42." if not request.allows_calls else ADD
            fallback = ScriptedProvider([base])
            self.requests.append(request)
            async with aclosing(fallback.generate(request)) as deltas:
                async for delta in deltas:
                    yield delta

    model = Caller([])
    async with DialClient(model, servers={"calc": calculator()}, limits=Limits(max_depth=3, max_repeats=9)) as dial:
        turn = await dial.run(ASK)
    assert (turn.stop_reason, turn.depth, turn.text) == (StopReason.MAX_DEPTH, 3, "What I have: 42.")
    assert len(model.requests) == 5
    assert [record.result.success for record in turn.tool_calls] == [True] * 3
    assert turn.messages[-2].text.startswith("Not run: too many rounds of tool calls")


async def test_a_model_that_calls_tools_despite_tool_choice_none_ends_with_its_text() -> None:
    dial, _ = client({"text": "Adding."} | ADD, after="repeat", limits=Limits(max_depth=2))
    async with dial:
        turn = await dial.run(ASK)
    assert turn.stop_reason is StopReason.MAX_DEPTH
    assert turn.text == "Adding."
    assert turn.message.tool_calls == ()


async def test_a_turn_without_text_at_a_limit_gets_a_fixed_text() -> None:
    dial, _ = client(ADD, after="repeat", limits=Limits(max_depth=1))
    async with dial:
        turn = await dial.run(ASK)
    assert turn.text == "[Unable to complete task: too many rounds of tool calls]"


async def test_tools_that_always_fail_end_the_turn_with_the_text_so_far() -> None:
    dial, _ = client({"text": "Trying."} | call("fail"), after="repeat")
    async with dial:
        turn = await dial.run(ASK)
    assert (turn.stop_reason, turn.text) == (StopReason.CONSECUTIVE_ERRORS, "Trying.")
    assert {record.result.success for record in turn.tool_calls} == {False}
    assert "secret detail" not in json.dumps(turn.to_dict())


async def test_a_limit_raises_only_with_on_limit_raise() -> None:
    dial, model = client(ADD, after="repeat", limits=Limits(max_depth=1), on_limit="raise")
    async with dial:
        with pytest.raises(LimitReached) as reached:
            await dial.run(ASK)
    assert reached.value.turn.stop_reason is StopReason.MAX_DEPTH
    assert len(model.requests) == 2


@virtual_time
async def test_a_timeout_ends_the_turn_with_the_text_so_far() -> None:
    dial, _ = client({"text": "I begin", "hang": True}, limits=Limits(timeout=100))
    async with dial:
        turn = await dial.run(ASK)
    assert turn.stop_reason is StopReason.TIMEOUT
    assert turn.text == "I begin\n\n[Unable to complete task: the time for this turn is over]"


async def test_a_model_failure_keeps_the_calls_and_text_so_far() -> None:
    dial, _ = client(ADD, {"error": {"message": "overloaded", "status": 529}})
    async with dial:
        with pytest.raises(ProviderError, match="overloaded") as broken:
            await dial.run(ASK)
    assert broken.value.status == 529
    assert [m.role for m in broken.value.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]


async def test_leaving_a_stream_cancels_the_turn_and_its_tool_calls() -> None:
    cancelled = anyio.Event()
    running = anyio.Event()
    server = MCPServer("slow")

    @server.tool()
    async def wait() -> None:
        """Wait."""
        running.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    model = ScriptedProvider([call("wait")])
    async with DialClient(model, servers={"slow": server}) as dial:
        async with aclosing(dial.stream(ASK)) as events:
            async for event in events:
                if isinstance(event, ToolCallStarted):
                    await running.wait()
                    break
        with anyio.fail_after(30):
            await cancelled.wait()
        assert not dial._turns.are_running


async def test_a_cancelled_turn_has_the_text_and_calls_so_far() -> None:
    dial, _ = client({"text": "Let me"} | ADD, {"text": "It is", "hang": True})
    async with dial:
        running = dial.start(ASK)
        async with aclosing(running.events()) as events:
            async for event in events:
                if isinstance(event, TextDelta) and event.text == "It is":
                    running.cancel()
        turn = await running.result()
    assert turn.stop_reason is StopReason.CANCELLED
    assert [m.text for m in turn.messages[1:]] == ["Let me", "42", "It is"]


async def test_a_cancelled_call_that_waited_for_approval_is_reported_as_not_run() -> None:
    asked = anyio.Event()

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError("nobody answers")

    dial, _ = client(ADD, "unused", approve=approve)
    async with dial:
        running = dial.start(ASK, stream_events=False)
        await asked.wait()
        running.cancel()
        turn = await running.result()
    assert turn.stop_reason is StopReason.CANCELLED
    assert [message.text for message in turn.messages if message.role is Role.TOOL] == ["Not run: it was cancelled."]
