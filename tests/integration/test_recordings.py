"""Replay of recorded conversations: offline, without their servers, and with the same result."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dial_client import DialClient, Message, Turn
from tests.inner import (
    Api,
    Approval,
    CallChunk,
    Completion,
    Decision,
    FinishReason,
    Limits,
    ModelProfile,
    ProviderError,
    ReasoningChunk,
    TextChunk,
    ToolCallRequest,
    Usage,
)
from tests.support.fakes import Model
from tests.support.model_endpoint import Call, Raw, Say, events, model_endpoint, refuse
from tests.support.program import dial_chat, entry, write_config

SDK = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "servers" / "sdk.py"), "stdio"]}
QUESTION = [Message.user("Hello?")]
FAILS = {
    "say": '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "no"}], "isError": true}}'
}
BREAKS = {"say": '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32603, "message": "out of cheese"}}'}

pytestmark = pytest.mark.anyio


def without_times(turn: Turn | Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as JSON, without its times and without what ``--output json`` adds."""
    added = {"conversation_id", "model", "duration_s"}
    values = turn.to_dict() if isinstance(turn, Turn) else turn
    data = {name: value for name, value in values.items() if name not in added}
    data["tool_calls"] = [{**call, "duration_s": 0.0} for call in data["tool_calls"]]
    return data


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def played(path: Path, servers: Mapping[str, Any] | None = None, **options: Any) -> Turn:
    async with DialClient(f"scripted:{path}", servers=servers or {}, **options) as dial:
        return await dial.run(QUESTION)


def calling(*calls: ToolCallRequest) -> list[Any]:
    """Return the deltas of a reply with the tool calls."""
    return [*(CallChunk(call) for call in calls), Completion(FinishReason.TOOL_CALLS)]


def saying(text: str) -> list[Any]:
    return [TextChunk(text), Completion(FinishReason.STOP)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", list(Api))
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in-one-piece"])
async def test_a_replay_without_servers_returns_the_recorded_turn(wire: Api, stream: bool, tmp_path: Path) -> None:
    file, empty = tmp_path / "bug.json", tmp_path / "empty"
    empty.mkdir()
    first = (
        Call("sdk__echo", {"text": "\u00e4"}, "c1"),
        Call("sdk__echo", {"text": "b"}, "c2"),
        Call("big", {"size": "many"}, "c3"),  # invalid arguments
        Call("nowhere", {}, "c4"),
    )
    second = (Call("odd__echo", FAILS, "c5"), Call("odd__echo", BREAKS, "c6"), Call("sdk__echo", {"text": "b"}, "c7"))
    replies = [Say("I look.", first, "Hm, how?"), Say("", second, "Again."), Say("That was all.", usage=(5, 9))]
    servers = {"sdk": SDK, "odd": entry("BadAnswers"), "not": entry("Refuses")}
    with model_endpoint(replies) as endpoint:
        profile = ModelProfile("m", api=wire, base_url=endpoint.url, model="m")
        async with DialClient("m", servers=servers, models={"m": profile}, record=file) as dial:
            recorded = await dial.start(QUESTION, stream=stream, stream_events=False).result()
    words = ["--no-save", "--output", "json", "-m", f"scripted:{file}", "Hello?"]
    ran = dial_chat(empty, *words, *([] if stream else ["--no-stream"]))
    expected = without_times(recorded)
    # The replay has no notes about missing servers, and no prices.
    expected["notes"] = [note for note in expected["notes"] if "'not'" not in note]

    assert ran.stderr == ""
    assert without_times(json.loads(ran.stdout)) == expected
    assert ran.returncode == 0
    assert recorded.text == "That was all."
    assert [record.result.success for record in recorded.tool_calls] == [True, True, False, False, False, False, True]


async def test_a_provider_without_a_model_api_is_recorded_by_its_replies(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    call = ToolCallRequest("c", "echo", {}, unreadable="{not")
    busy = ProviderError("busy", status=503, code="overloaded", retry_after=2.5)
    model = Model(
        [
            ReasoningChunk("Hm"),
            TextChunk("I "),
            TextChunk("look"),
            CallChunk(call),
            Completion(FinishReason.TOOL_CALLS),
        ],
        [TextChunk("It"), Completion(FinishReason.LENGTH, Usage(3, 4), {"signature": "x"}, ("odd",))],
        [TextChunk("Half"), busy],
    )
    async with DialClient(model, servers={"it": entry("Server")}, record=file) as dial:
        turn = await dial.run(QUESTION)
        with pytest.raises(ProviderError):
            await dial.run(QUESTION)
    async with DialClient(f"scripted:{file}") as dial:
        assert without_times(await dial.run(QUESTION)) == without_times(turn)
        with pytest.raises(ProviderError, match="busy") as caught:
            await dial.run(QUESTION)

    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "overloaded", 2.5)
    assert [message.text for message in caught.value.messages[1:]] == ["Half"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Raw(events({"choices": [{"delta": {"content": "Half"}}]}, done=False).chunks, cut=True), id="cut"),
        pytest.param(events({"choices": [{"delta": {"content": "\udc80"}}]}, "{no", {"error": "x"}), id="told"),
        pytest.param(Raw((b'data: {"choices": [{"delta": {"content": "caf\xe9"}}]}\n\n',)), id="not UTF-8"),
        pytest.param(refuse(400, "no such model"), id="refused"),
        pytest.param(Raw((b"<html><title>Hi</title>",)), id="a web page"),
        pytest.param(Raw(()), id="nothing"),
    ],
)
async def test_a_failed_reply_fails_in_the_replay(answer: Raw, tmp_path: Path) -> None:
    async def outcome(dial: DialClient) -> Any:
        async with dial:
            try:
                return without_times(await dial.run(QUESTION))
            except ProviderError as error:
                return str(error), error.status, error.code, error.messages

    file = tmp_path / "r.json"
    with model_endpoint([answer]) as endpoint:
        profile = ModelProfile("m", api=Api.CHAT, base_url=endpoint.url, model="m")
        recorded = await outcome(DialClient("m", models={"m": profile}, record=file))

    assert await outcome(DialClient(f"scripted:{file}")) == recorded


async def test_a_paused_reply_is_continued_in_the_replay(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    with model_endpoint([Say("One", finish="pause_turn"), Say("two")]) as endpoint:
        profile = ModelProfile("m", api=Api.MESSAGES, base_url=endpoint.url, model="m")
        async with DialClient("m", models={"m": profile}, record=file) as dial:
            recorded = await dial.run(QUESTION)

    assert without_times(await played(file)) == without_times(recorded)
    assert recorded.text == "Onetwo"


async def test_a_server_exit_during_a_call_has_the_same_error_in_the_replay(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    model = Model(calling(ToolCallRequest("c", "echo", {})), saying("It died."))
    async with DialClient(model, servers={"frail": entry("DiesInCall")}, record=file) as dial:
        recorded = await dial.run(QUESTION)
    turn = await played(file)

    assert "not available" in str(recorded.tool_calls[0].result.content)
    assert turn.tool_calls[0].result == recorded.tool_calls[0].result


async def test_a_call_that_timed_out_times_out_in_the_replay(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    short = Limits(tool_timeout=0.2)
    model = Model(calling(ToolCallRequest("c", "echo", {})), saying("It is slow."))
    async with DialClient(model, servers={"slow": entry("NeverAnswers")}, record=file, limits=short) as dial:
        recorded = await dial.run(QUESTION)

    assert "no result within" in str(recorded.tool_calls[0].result.content)
    assert without_times(await played(file, limits=short)) == without_times(recorded)


async def test_a_denied_call_is_denied_in_the_replay(tmp_path: Path) -> None:
    async def approve(*asked: Any) -> Approval:
        return Approval(Decision.DENY, "not today")

    file = tmp_path / "r.json"
    model = Model(calling(ToolCallRequest("c", "echo", {})), saying("Pity."))
    async with DialClient(model, servers={"raw": entry("Server")}, record=file, approve=approve) as dial:
        recorded = await dial.run(QUESTION)
    ran = dial_chat(tmp_path, "--no-save", "--output", "json", "-m", f"scripted:{file}", "Hello?")

    assert without_times(json.loads(ran.stdout)) == without_times(recorded)
    assert ran.returncode == 5


async def test_a_recording_has_the_flags_of_a_dial_deployment(tmp_path: Path) -> None:
    quirks = {"reasoning_in": ["thoughts"]}
    with model_endpoint([Say("Hello")], refuse(404, "not described")) as endpoint:
        profile = ModelProfile("m", preset="dial", base_url=endpoint.url, model="m", quirks=quirks)
        async with DialClient("m", models={"m": profile}, record=tmp_path / "r.json") as dial:
            await dial.run(QUESTION)

    assert lines_of(tmp_path / "r.json")[0]["flags"] == quirks


async def test_recorded_results_are_replayed_in_order_and_unrecorded_calls_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    tool = {"name": "roll", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    called = {"server": "dice", "tool": "roll", "arguments": {"n": 6}}
    results = [{"content": [{"type": "text", "text": text}]} for text in ("one", "two")]
    head: list[Any] = [{"recording": 1}, {"server": "dice", "tools": [tool]}]
    file.write_text(
        "\n".join(json.dumps(line) for line in [*head, *({"called": called, "result": r} for r in results)])
    )
    async with DialClient(f"scripted:{file}") as dial:
        answers = [await dial.call("roll", {"n": n}) for n in (6, 6, 6, 7)]

    assert [result.content for result in answers[:2]] == ["one", "two"]
    assert [result.success for result in answers] == [True, True, False, False]
    assert "not recorded as often" in str(answers[2].content)
    assert "never recorded" in str(answers[3].content)


async def test_a_replay_offers_the_recorded_tools(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    async with DialClient(Model(saying("Hi")), servers={"sdk": SDK | {"disabledTools": ["slow"]}}, record=file) as dial:
        await dial.run(QUESTION)
        offered = dial.tools
    async with DialClient(f"scripted:{file}") as dial:
        assert dial.tools == offered
        assert "slow" not in {tool.name for tool in dial.tools}


async def test_a_replay_starts_no_server_of_the_configuration(tmp_path: Path) -> None:
    file, log = tmp_path / "r.json", tmp_path / "log"
    file.write_text(json.dumps({"recording": 1}) + "\n" + json.dumps({"replies": ["Hi"]}) + "\n")
    write_config(tmp_path, {"raw": entry("Server", "--log", str(log))})
    async with DialClient.from_config(tmp_path / "servers.json", f"scripted:{file}") as dial:
        assert (await dial.run(QUESTION)).text == "Hi"
        assert not dial.servers
    ran = dial_chat(tmp_path, "--no-save", "-m", "scripted:r.json", "Hello?")

    assert (ran.stdout, ran.stderr) == ("Hi\n", "")
    assert not log.exists()


async def test_a_server_object_replaces_the_recorded_server_of_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    call = ToolCallRequest("c", "echo", {})
    two = {"one": entry("Server"), "two": entry("Server")}
    model = Model(calling(replace(call, name="one__echo"), replace(call, id="d", name="two__echo")), saying("Done."))
    async with DialClient(model, servers=two, record=file) as dial:
        recorded = await dial.run(QUESTION)
    turn = await played(file, {"one": entry("BadText")})

    assert [str(record.result.content) for record in recorded.tool_calls] == ["{}", "{}"]
    assert [str(record.result.content)[:3] for record in turn.tool_calls] == ["caf", "{}"]


async def test_a_replay_uses_the_recorded_tool_format(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    model = Model(saying('Thought: go\nAction: echo\nAction Input: {"a": 1}'), saying("Final Answer: done"))
    async with DialClient(model, servers={"raw": entry("Server")}, tool_format="react", record=file) as dial:
        recorded = await dial.run(QUESTION)
    turn = await played(file)

    assert len(recorded.tool_calls) == 1
    assert turn.text == recorded.text == "done"
    assert turn.tool_calls[0].result.content == recorded.tool_calls[0].result.content
