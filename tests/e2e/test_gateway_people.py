"""``dial-chat gateway`` and the person at its client, over standard input and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp_types import ElicitResult, InputRequiredResult

from tests.inner import list_log_files
from tests.support.gateway_clients import Person, decide, text_of
from tests.support.gateways import MODES, program, wait_for_tools
from tests.support.program import HERE, LONG, dial_chat, entry, python_server, write_config

pytestmark = pytest.mark.anyio
both_modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def anyio_backend() -> str:
    """Return the loop of the client; the gateway is another process."""
    return "asyncio"


def shop(folder: Path, protocol: str) -> None:
    server = python_server(HERE / "servers" / "questions.py", protocol=protocol)
    write_config(folder, {"shop": server})


@both_modes
@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_approvals_and_questions_reach_the_person_and_the_answers_the_server(
    tmp_path: Path, mode: str, protocol: str
) -> None:
    shop(tmp_path, protocol)
    person = Person(
        lambda params: decide("session") if "Allow" in params.message else ElicitResult(action="accept", content={})
    )
    async with program(tmp_path, mode, **person.options()) as client:
        with anyio.fail_after(LONG):
            await wait_for_tools(client, "shop__returns")
            assert "accept" in text_of(await client.call_tool("shop__returns"))
            assert "accept" in text_of(await client.call_tool("shop__returns"))
            assert text_of(await client.call_tool("shop__samples_too")) == "a word of person"
            assert text_of(await client.call_tool("shop__roots")) == "person=file:///person"
    asked = [params.message.splitlines()[:2] for params in person.asked]
    assert asked[:3] == [["Allow this tool call?", "Tool: returns"], ["shop asks: Sure?"], ["shop asks: Sure?"]]
    (log,) = list_log_files(tmp_path / "home" / "xdg_state_home" / "dial-client" / "audit")
    records = [json.loads(line) for line in log.read_text().splitlines() if '"id":' in line]
    assert {record["client"] for record in records} == {"person 1"}
    # The client and the server of the newer revision exchange the answer themselves, in the next call.
    decision = "asked" if (protocol, mode) == ("auto", MODES[-1]) else "accept"
    assert [record["decision"] for record in records if record["event"] == "elicitation"] == [decision, decision]


async def test_a_question_about_a_call_outlives_the_gateway(tmp_path: Path) -> None:
    write_config(tmp_path, {"it": entry("Server")})
    asked: Any = None
    for decision in (None, decide("always")):
        async with program(tmp_path, "2026-07-28", **Person(decide("deny")).options()) as client:
            with anyio.fail_after(LONG):
                await wait_for_tools(client, "it__echo")
                more: dict[str, Any] = {}
                if decision is not None:
                    more = {"input_responses": {"approval": decision}, "request_state": asked.request_state}
                asked = await client.session.call_tool("it__echo", {"a": 1}, allow_input_required=True, **more)
                assert isinstance(asked, InputRequiredResult) == (decision is None), asked
    assert text_of(asked) == '{"a": 1}'
    listed = dial_chat(tmp_path, "grants")
    assert "echo" in listed.stdout


@both_modes
async def test_a_client_without_forms_reads_the_command_that_allows_the_call(tmp_path: Path, mode: str) -> None:
    write_config(tmp_path, {"it": entry("Server")})
    async with program(tmp_path, mode) as client:
        with anyio.fail_after(LONG):
            await wait_for_tools(client, "it__echo")
            denied = await client.call_tool("it__echo", {})
            assert "dial-chat grants" in text_of(denied)
            assert "--allow it/echo" in text_of(denied)
            await anyio.to_thread.run_sync(dial_chat, tmp_path, "grants", "--allow", "it/echo")
            assert not (await client.call_tool("it__echo", {})).is_error
