"""DialClient with real servers and scripted models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer

from dial_client import (
    Approval,
    ConfigError,
    DialClient,
    Event,
    Finished,
    Limits,
    Message,
    MessageCompleted,
    Role,
    RoundStarted,
    ServerStartError,
    ServerState,
    StopReason,
    TextDelta,
    ToolCallFinished,
    ToolCallRequest,
    ToolCallStarted,
    ToolSpec,
    Turn,
)
from dial_client.testing import ScriptedProvider
from tests.inner import ApprovalContext, ApprovalPolicy, Delta, ModelRequest
from tests.support.clients import ADD, ASK, calculator, call, client

pytestmark = pytest.mark.anyio


async def test_a_tool_is_called_and_the_model_answers_from_its_result() -> None:
    dial, model = client(ADD, "It is 42.")
    async with dial:
        turn = await dial.run(ASK)
    assert (turn.text, turn.stop_reason, turn.depth) == ("It is 42.", StopReason.ANSWERED, 1)
    [record] = turn.tool_calls
    assert (record.server, record.tool, record.call.arguments) == ("calc", "add", {"a": 17, "b": 25})
    assert (record.result.success, record.result.content) == (True, "42")
    assert [m.role for m in turn.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert [m.text for m in model.requests[1].messages] == ["go on", "", "42"]


async def test_the_callers_messages_are_not_changed() -> None:
    dial, _ = client(ADD, "It is 42.")
    mine = list(ASK)
    async with dial:
        await dial.run(mine)
    assert mine == ASK


async def test_streaming_and_not_streaming_return_the_same_turn() -> None:
    script = ({"text": "Let me see.", "chunk_size": 3} | ADD, {"text": "It is 42.", "chunk_size": 2})
    dial, model = client(*script)
    async with dial:
        plain = await dial.run(ASK)
    streamed_dial, streamed_model = client(*script)
    async with streamed_dial:
        events = [event async for event in streamed_dial.stream(ASK)]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert _without_times(finished.turn) == _without_times(plain)
    assert [request.stream for request in model.requests + streamed_model.requests] == [False, False, True, True]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me see.It is 42."


def _without_times(turn: Turn) -> dict[str, Any]:
    data = turn.to_dict()
    for record in data["tool_calls"]:
        del record["duration_s"]
    return json.loads(json.dumps(data))  # type: ignore[no-any-return]  # JSON has no types


async def test_events_come_in_pairs_and_in_order() -> None:
    dial, _ = client(ADD, "It is 42.")
    async with dial:
        events = [event async for event in dial.stream(ASK)]
    kinds = [type(event) for event in events if not type(event).__name__.startswith(("Status", "Server"))]
    assert kinds == [
        RoundStarted,
        MessageCompleted,
        ToolCallStarted,
        ToolCallFinished,
        MessageCompleted,
        RoundStarted,
        TextDelta,
        MessageCompleted,
        Finished,
    ]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (call("ad", a=1, b=2), "There is no tool 'ad'. Did you mean 'add'?"),
        (call("add", a=1), "The arguments do not fit"),
        ({"tool_calls": [{"name": "add", "arguments": '{"a": 1,'}]}, "The arguments are not a JSON object."),
    ],
)
async def test_an_invalid_call_is_reported_to_the_model(asked: Any, error: str) -> None:
    dial, model = client(asked, "I see.")
    async with dial:
        turn = await dial.run(ASK)
    assert (turn.stop_reason, turn.text) == (StopReason.ANSWERED, "I see.")
    assert error in model.requests[1].messages[-1].text
    assert model.requests[1].messages[-1].is_error


async def test_calls_of_one_round_run_concurrently_and_have_ordered_results() -> None:
    all_have_started = anyio.Event()
    inside: set[int] = set()
    server = MCPServer("meeting")

    @server.tool()
    async def meet(number: int) -> str:
        """Wait for the calls with other numbers."""
        inside.add(number)
        if len(inside) == 3:
            all_have_started.set()
        await all_have_started.wait()
        return f"met {number}"

    calls = [{"name": "meet", "arguments": {"number": n}} for n in (3, 1, 2)]
    model = ScriptedProvider([{"tool_calls": calls}, "Done."])
    async with DialClient(model, servers={"meeting": server}) as dial:
        with anyio.fail_after(30):
            turn = await dial.run(ASK)
    assert [m.text for m in turn.messages[2:5]] == ["met 3", "met 1", "met 2"]


async def test_a_denied_call_is_not_run_and_the_model_is_told() -> None:
    asked: list[tuple[str, str]] = []

    async def never(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append((tool.name, context.server))
        return Approval("deny", "not today")

    dial, model = client(ADD, "Then not.", approve=never)
    async with dial:
        turn = await dial.run(ASK)
    assert asked == [("add", "calc")]
    assert model.requests[1].messages[-1].text == "The user did not allow this call: not today."
    assert [record.denied for record in turn.tool_calls] == [True]


@pytest.mark.parametrize("pattern", ["add", "*/add", "calc/*", "*"])
async def test_a_deny_rule_overrides_every_allow_rule(pattern: str) -> None:
    dial, _ = client(ADD, "Then not.", approval=ApprovalPolicy(allow=["*"], deny=[pattern]))
    async with dial:
        turn = await dial.run(ASK)
    assert turn.tool_calls[0].denied


async def test_approval_for_the_session_is_requested_once() -> None:
    asked = []

    async def always(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(tool.name)
        return Approval("session")

    dial, _ = client(ADD, ADD, "Done.", approve=always)
    async with dial:
        await dial.run(ASK)
    assert asked == ["add"]


async def test_waiting_for_an_approval_does_not_count_towards_the_timeout() -> None:
    async def slowly(request: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        await anyio.sleep(5.5)
        return Approval("once")

    dial, _ = client(ADD, "It is 42.", approve=slowly, limits=Limits(timeout=5))
    async with dial:
        turn = await dial.run(ASK)
    assert turn.text == "It is 42."


async def test_fifty_concurrent_turns_do_not_mix() -> None:
    class Echo(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            last = request.messages[-1]
            number = next(int(message.text) for message in request.messages if message.role is Role.USER)
            base = call("add", a=number, b=0) if last.role is Role.USER else f"It is {last.text}."
            async with aclosing(ScriptedProvider([base]).generate(request)) as deltas:
                async for delta in deltas:
                    yield delta

    answers: dict[int, str] = {}
    async with DialClient(Echo([]), servers={"calc": calculator()}) as dial, anyio.create_task_group() as group:

        async def ask_number(number: int) -> None:
            answers[number] = (await dial.run([Message.user(str(number))])).text

        for number in range(50):
            group.start_soon(ask_number, number)
    assert answers == {number: f"It is {number}." for number in range(50)}


async def test_a_note_names_a_failed_server_and_other_servers_work() -> None:
    model = ScriptedProvider([ADD, "It is 42."])
    servers: dict[str, Any] = {"calc": calculator(), "gone": {"command": "no-such-program-anywhere"}}
    async with DialClient(model, servers=servers) as dial:
        turn = await dial.run(ASK)
        assert dial.servers["gone"].state is ServerState.FAILED
    assert turn.text == "It is 42."
    assert any("'gone'" in note and "no-such-program-anywhere" in note for note in turn.notes)


async def test_a_required_server_that_does_not_start_is_an_error() -> None:
    servers = {"gone": {"command": "no-such-program-anywhere", "required": True}}
    with pytest.raises(ServerStartError, match="no-such-program-anywhere"):
        async with DialClient(ScriptedProvider([]), servers=servers):
            raise AssertionError("it must not open")


async def test_equally_named_tools_of_two_servers_get_the_server_as_prefix() -> None:
    async with DialClient(ScriptedProvider([]), servers={"a": calculator(), "b": calculator()}) as dial:
        assert [tool.name for tool in dial.tools] == ["a__add", "a__fail", "b__add", "b__fail"]
        assert {name: c.name for name, c in dial.tool_name_client_map.items()} == {
            "a__add": "a",
            "a__fail": "a",
            "b__add": "b",
            "b__fail": "b",
        }


async def test_instructions_come_before_the_conversation() -> None:
    dial, model = client("Yes.", system="Be brief.")
    async with dial:
        await dial.run(ASK)
    assert model.requests[0].instruction_text == "Be brief."
    assert [message.text for message in model.requests[0].messages] == ["go on"]


async def test_a_client_can_be_closed_from_another_task_and_twice() -> None:
    dial, _ = client("Yes.")
    async with anyio.create_task_group() as group:
        await dial.open()
        group.start_soon(dial.aclose)
    await dial.aclose()


async def test_a_client_without_a_model_still_calls_tools() -> None:
    async with DialClient(servers={"calc": calculator()}) as dial:
        result = await dial.call("add", {"a": 1, "b": 2})
        assert result.content == "3"
        with pytest.raises(ConfigError, match="no model"):
            await dial.run(ASK)


async def test_server_sent_events_end_in_done() -> None:
    dial, _ = client(ADD, {"text": "It is 42.", "chunk_size": 4})
    async with dial:
        lines = [line async for line in dial.stream_response(ASK)]
    assert all(line.endswith("\n\n") for line in lines)
    assert lines[-1] == "data: [DONE]\n\n"
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "It is 42."
    named = [line.split("\n")[0] for line in lines if line.startswith("event: ")]
    assert [name for name in named if name != "event: status"] == [
        "event: tool_call",
        "event: tool_result",
        "event: done",
    ]


async def test_an_error_after_the_first_byte_is_an_event() -> None:
    dial, _ = client({"text": "It", "error": {"message": "broke", "status": 500}})
    async with dial:
        lines = [line async for line in dial.stream_response(ASK)]
    assert lines[-2].startswith("event: error\n")
    assert lines[-1] == "data: [DONE]\n\n"


async def test_a_new_tool_is_offered_in_the_next_round() -> None:
    server = calculator()

    @server.tool()
    async def learn() -> str:
        """Learn to multiply."""
        server.add_tool(lambda a, b: a * b, name="multiply", description="Multiply.")
        return "learned"

    model = ScriptedProvider([call("learn"), "Done."])
    async with DialClient(model, servers={"calc": server}) as dial:
        await dial.run(ASK)
    assert [tool.name for tool in model.requests[0].tools] == ["add", "fail", "learn"]


async def test_the_configuration_names_the_model(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text('["Hello."]')
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {}, "defaultModel": "scripted:${workspaceFolder}/replies.json"}))
    async with DialClient.from_config(config) as dial:
        events: list[Event] = [event async for event in dial.stream(ASK)]
    assert isinstance(events[-1], Finished)
    assert events[-1].turn.text == "Hello."


async def test_a_configuration_without_a_model_is_an_error(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    config.write_text("{}")
    with pytest.raises(ConfigError, match="no model is named"):
        DialClient.from_config(config)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # only asyncio can cancel a single task
async def test_a_client_is_closed_even_if_closing_is_cancelled() -> None:
    dial = DialClient(ScriptedProvider([{"text": "One", "hang": True}]), servers={"calculator": calculator()})
    await dial.open()
    await dial.ready()
    turn = dial.start("Count!")
    closing = asyncio.create_task(dial.aclose())
    await anyio.lowlevel.checkpoint()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert turn.has_ended
    assert dial.servers["calculator"].state is ServerState.STOPPED
