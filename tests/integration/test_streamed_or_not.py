"""A scripted model gives the same `Turn` with and without streaming, for every deviation of the model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dial_client import DialClient, Message
from tests.inner import Finished, ProviderError, ScriptedProvider, TextDelta
from tests.support.deviations import CASES, Case

pytestmark = pytest.mark.anyio

_NEVER_SHOWN = ("Traceback", "<tool_call", '"arguments"', "httpx2", "Error(", "\x1b")


def server(ran: list[tuple[str, dict[str, Any]]]) -> Any:
    from mcp.server import MCPServer

    made = MCPServer("it", log_level="CRITICAL")

    @made.tool()
    def echo(text: str) -> str:
        ran.append(("echo", {"text": text}))
        return text

    @made.tool()
    def now() -> str:
        ran.append(("now", {}))
        return "noon"

    return made


async def outcome(case: Case, *, stream: bool) -> dict[str, Any]:
    """Run a scripted turn, and return all its results except durations and random ids."""
    replies = case.streamed if stream else case.whole or case.streamed
    provider = ScriptedProvider(replies, after="repeat" if case.repeats else "error")
    ran: list[tuple[str, dict[str, Any]]] = []
    result: dict[str, Any] = {}
    shown = ""
    async with DialClient(provider, servers={"it": server(ran)}, limits=case.limits) as dial:
        try:
            async for event in dial.start([Message.user("Hello?")], stream=stream).events():
                match event:
                    case TextDelta(text):
                        shown += text
                    case Finished(turn):
                        result = turn.to_dict()
        except ProviderError as error:
            messages = [message.to_dict() for message in error.messages]
            result = {"error": str(error), "status": error.status, "code": error.code, "messages": messages}
    calls = [{**call, "duration_s": 0.0} for call in result.get("tool_calls", [])]
    # Parallel calls may reach the server in any order.
    return _with_numbered_ids(result | {"tool_calls": calls, "shown": shown, "ran": sorted(map(repr, ran))})


def _with_numbered_ids(result: dict[str, Any]) -> dict[str, Any]:
    """Replace the ids of calls by numbers, because ids are random if the model gives none."""
    text = json.dumps(result)
    for at, call in enumerate(result["tool_calls"]):
        text = text.replace(json.dumps(call["id"]), f'"id {at}"')
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_script_gives_the_same_turn_with_and_without_streaming(case: Case) -> None:
    streamed, whole = await outcome(case, stream=True), await outcome(case, stream=False)

    assert streamed == whole
    assert streamed["ran"] == sorted(map(repr, case.ran)), "a call runs once, whole, or not at all"
    assert streamed.get("stop_reason") == (case.stop.value if case.stop else None)
    text = streamed["text"] if case.stop else streamed["error"]
    assert text.startswith(case.text) if case.stop else case.text in text
    assert [sign for sign in _NEVER_SHOWN if sign in streamed["shown"] + text] == []
    assert "\n" not in streamed.get("error", "")
