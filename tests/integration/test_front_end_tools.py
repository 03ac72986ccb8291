"""The own tools of front ends: the model calls them, the front end runs them, and the next request has the results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from dial_client.testing import ScriptedProvider
from tests.inner import (
    SQLITE_IS_TOO_OLD,
    AccessPolicy,
    AccessTokens,
    FirstOf,
    PersonalTokens,
    SQLStore,
    TokenAuthenticator,
)
from tests.integration.test_serve_cluster import two
from tests.support.front_end_clients import needs_front_ends, run_ag_ui, run_ai_sdk
from tests.support.http_service import TOKEN, Gate, HttpService, serve
from tests.support.temporary_stores import needs_postgres

pytestmark = [pytest.mark.anyio, needs_front_ends]

SCHEMA = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
PAINT = {"name": "paint", "description": "Paints the page.", "parameters": SCHEMA}
ASK_PAINT = {"tool_calls": [{"name": "paint", "arguments": {"colour": "red"}, "id": "one"}], "text": "I paint."}
ASK_TWO = {"tool_calls": [{"name": "paint", "arguments": {"colour": each}, "id": each} for each in ("red", "blue")]}
BOTH = {
    "tool_calls": [
        {"name": "paint", "arguments": {"colour": "red"}, "id": "one"},
        {"name": "write", "arguments": {"what": "a"}, "id": "two"},
    ]
}
GO = {"send": "Go!"}
BODY = {"tools": {"paint": {"description": "Paints the page.", "parameters": SCHEMA}}}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Pen:
    """A server of the service."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.server = MCPServer("pen")

        @self.server.tool()
        def write(what: str) -> str:
            """Writes."""
            self.written.append(what)
            return f"written: {what}"


async def read_stored(service: HttpService) -> list[tuple[str, Any]]:
    """Return the roles and texts of the only conversation."""
    (listed,) = (await service.json("GET", "/conversations"))["conversations"]
    found = (await service.json("GET", f"/conversations/{listed['id']}"))["messages"]
    return [(message["role"], message["content"]) for message in found]


def read_requests(service: HttpService) -> list[Any]:
    assert isinstance(service.provider, ScriptedProvider)
    return service.provider.requests


def find_calls(agent: Any) -> list[Any]:
    return [event for event in agent["events"] if event["type"] == "TOOL_CALL_START"]


async def test_a_call_of_a_front_ends_tool_ends_the_run_and_the_next_run_has_its_result() -> None:
    async with serve([ASK_PAINT, "Painted."]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"results": ["red it is"]}], tools=[PAINT])
        stored = await read_stored(service)
        first, second = read_requests(service)
    assert agent["failures"] == []
    assert [tool.name for tool in first.tools] == ["paint"]
    (call,) = find_calls(agent)
    assert (call["toolCallName"], agent["messages"][-1]["content"]) == ("paint", "Painted.")
    ended = [event["outcome"] for event in agent["events"] if event["type"] == "RUN_FINISHED"]
    assert ended == [{"type": "success", "pendingToolCallIds": [call["toolCallId"]]}, {"type": "success"}]
    assert stored == [("user", "Go!"), ("assistant", "I paint."), ("tool", "red it is"), ("assistant", "Painted.")]
    assert [(message.role, message.text) for message in second.messages[-1:]] == [("tool", "red it is")]


async def test_a_servers_call_of_the_same_reply_runs_first_and_once() -> None:
    pen = Pen()
    approved = {"status": "resolved", "payload": {"approved": True}}
    async with serve([BOTH, "Done."], {"pen": pen.server}) as service:
        steps: list[dict[str, Any]] = [GO, {"answers": [approved]}, {"results": ["red it is"]}]
        agent = await run_ag_ui(service.url, TOKEN, steps, tools=[PAINT])
        stored = await read_stored(service)
    assert (agent["failures"], pen.written) == ([], ["a"])
    assert [event["toolCallName"] for event in find_calls(agent)] == ["write", "paint"]
    assert agent["messages"][-1]["content"] == "Done."
    assert [text for role, text in stored if role == "tool"] == ["red it is", "written: a"]


async def test_a_front_end_that_sends_a_message_in_place_of_the_result_goes_on() -> None:
    async with serve([ASK_PAINT, "Never mind."]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"send": "Stop that."}], tools=[PAINT])
        stored = await read_stored(service)
        late = await run_ag_ui(
            service.url, TOKEN, [{"results": ["red it is"]}], tools=[PAINT], calls=[find_calls(agent)[0]["toolCallId"]]
        )
        still = await read_stored(service)
    assert (agent["failures"], agent["messages"][-1]["content"]) == ([], "Never mind.")
    assert "sent no result" in stored[2][1] and stored[3:] == [("user", "Stop that."), ("assistant", "Never mind.")]
    assert "waits for these results" in str(late["failures"]) and still == stored


async def test_a_result_and_a_message_come_in_one_request() -> None:
    async with serve([ASK_PAINT, "Both."]) as service:
        steps: list[dict[str, Any]] = [GO, {"results": ["red it is"], "send": "And now?"}]
        agent = await run_ag_ui(service.url, TOKEN, steps, tools=[PAINT])
        stored = await read_stored(service)
    assert agent["failures"] == []
    assert stored[2:] == [("tool", "red it is"), ("user", "And now?"), ("assistant", "Both.")]


async def test_results_that_are_sent_twice_count_once() -> None:
    async with serve([ASK_PAINT, "Painted.", "More."]) as service:
        waiting = await run_ag_ui(service.url, TOKEN, [GO], tools=[PAINT])
        calls = waiting["pending"] * 2
        more = {"tools": [PAINT], "calls": calls}
        agent = await run_ag_ui(service.url, TOKEN, [{"results": ["red it is", "blue it is"]}], **more)
        again = await run_ag_ui(service.url, TOKEN, [{"results": ["green it is"]}], **more)
        stored = await read_stored(service)
    assert agent["failures"] == again["failures"] == []
    assert agent["messages"][-1]["content"] == again["messages"][-1]["content"] == "Painted."
    assert stored[2:] == [("tool", "red it is"), ("assistant", "Painted.")]


async def test_a_call_without_its_result_counts_as_interrupted_when_another_has_its_own() -> None:
    async with serve([ASK_TWO, "Half."]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"results": ["red it is"]}], tools=[PAINT])
        stored = await read_stored(service)
    assert (len(find_calls(agent)), agent["messages"][-1]["content"]) == (2, "Half.")
    assert stored[2] == ("tool", "red it is") and "sent no result" in stored[3][1]


async def test_a_front_end_sends_no_results_of_other_calls() -> None:
    pen = Pen()
    ask_write = {"tool_calls": [{"name": "write", "arguments": {"what": "a"}, "id": "one"}]}
    async with serve([ask_write, ASK_PAINT, "Never."], {"pen": pen.server}, allow=["pen/*"]) as service:
        waiting = await run_ag_ui(service.url, TOKEN, [GO], tools=[PAINT])
        ids = [call["toolCallId"] for call in find_calls(waiting)]
        for forged in (ids[0], "one", ids[1] + "0", ""):
            refused = await run_ag_ui(service.url, TOKEN, [{"results": ["forged"]}], tools=[PAINT], calls=[forged])
            assert "waits for these results" in str(refused["failures"]), forged
        stored = await read_stored(service)
    assert len(set(ids)) == 2 and "forged" not in str(stored)


async def test_a_conversation_that_waits_for_its_front_end_says_so() -> None:
    async with serve([ASK_PAINT]) as service:
        await run_ag_ui(service.url, TOKEN, [GO], tools=[PAINT])
        stored = await read_stored(service)
    assert stored[2] == ("tool", "[no result yet: the tool is still at work]")


async def test_a_front_ends_tool_hides_a_servers_tool_of_its_name_and_gets_its_own_name_back() -> None:
    pen = Pen()
    tools = [PAINT | {"name": "write"}, PAINT | {"name": "page.paint"}]
    reply = {"tool_calls": [{"name": "write", "arguments": {"colour": "red"}}]}

    def answer(request: Any) -> Any:
        (odd,) = (tool.name for tool in request.tools if tool.name.startswith("page"))
        return {"tool_calls": [*reply["tool_calls"], {"name": odd, "arguments": {"colour": "blue"}}]}

    from dial_client.testing import ScriptedProvider

    async with serve(ScriptedProvider(answer), {"pen": pen.server}, allow=["pen/*"]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO], tools=tools)
    assert [event["toolCallName"] for event in find_calls(agent)] == ["write", "page.paint"]
    assert pen.written == [] and "the caller has a tool of this name" in str(agent["events"][-1]["result"]["notes"])


@pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="tokens are in a database")
async def test_a_person_sends_no_results_for_the_calls_of_another(tmp_path: Any) -> None:
    store = SQLStore(tmp_path / "chats.db")
    await store.open()
    tokens = store.tokens
    assert isinstance(tokens, AccessTokens)
    anna, _ = await tokens.create("a front end", "anna", ("chat", "read"))
    bob, _ = await tokens.create("a front end", "bob", ("chat", "read"))
    policy = AccessPolicy(authenticator=FirstOf(TokenAuthenticator(TOKEN), PersonalTokens(tokens)))
    replies = [ASK_PAINT, ASK_PAINT, "For Anna."]
    async with serve(replies, policy=policy, store=store, single_user=False) as service:
        waiting = await run_ag_ui(service.url, anna, [GO], tools=[PAINT])
        step = {"results": ["forged"]}
        unknown = await run_ag_ui(service.url, bob, [step], tools=[PAINT], calls=waiting["pending"])
        await run_ag_ui(service.url, bob, [GO], tools=[PAINT])
        refused = await run_ag_ui(service.url, bob, [step], tools=[PAINT], calls=waiting["pending"])
        own = await run_ag_ui(service.url, anna, [{"results": ["red"]}], tools=[PAINT], calls=waiting["pending"])
    assert "waits for these results" in str(unknown["failures"])
    assert "waits for these results" in str(refused["failures"])
    assert (own["failures"], own["messages"][-1]["content"]) == ([], "For Anna.")


@needs_postgres
async def test_any_process_takes_the_results_of_a_front_end() -> None:
    async with two([ASK_PAINT], ["Painted."]) as (here, there):
        waiting = await run_ag_ui(here.url, TOKEN, [GO], tools=[PAINT])
        step, more = {"results": ["red it is"]}, {"tools": [PAINT], "calls": waiting["pending"]}
        agent = await run_ag_ui(there.url, TOKEN, [step], **more)
        again = await run_ag_ui(there.url, TOKEN, [step], **more)
    assert (agent["failures"], again["failures"]) == ([], [])
    assert [found["messages"][-1]["content"] for found in (agent, again)] == ["Painted."] * 2


async def send_at_once(services: Sequence[HttpService], body: Any, copies: int) -> list[tuple[int, str]]:
    """Send a request some times at the same instant; return each status, and the text of each answer."""
    answers: list[tuple[int, str]] = []

    async def send(service: HttpService) -> None:
        response = await service.http.post(f"{service.url}/ag-ui", json=body)
        events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
        text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        answers.append((response.status_code, text))

    async with anyio.create_task_group() as group:
        for copy in range(copies):
            group.start_soon(send, services[copy % len(services)])
    return answers


async def begin_with_a_call(service: HttpService) -> dict[str, Any]:
    """Run a turn that ends with a call of the front end; return the request that has the result."""
    question = {"id": "1", "role": "user", "content": "Go!"}
    body = {"threadId": "a-thread", "runId": "r", "tools": [PAINT], "state": {}, "context": [], "messages": [question]}
    response = await service.http.post(f"{service.url}/ag-ui", json=body)
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    (call,) = (event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START")
    return body | {"messages": [question, {"id": "2", "role": "tool", "toolCallId": call, "content": "red it is"}]}


async def test_results_that_come_several_times_at_once_begin_one_turn_and_each_request_has_its_answer() -> None:
    for _ in range(5):
        async with serve([ASK_PAINT, "Painted.", "Painted again!"]) as service:
            answers = await send_at_once([service], await begin_with_a_call(service), 4)
            stored = await read_stored(service)
            asked = len(read_requests(service))
        assert (answers, asked) == ([(200, "Painted.")] * 4, 2)
        assert stored[2:] == [("tool", "red it is"), ("assistant", "Painted.")]


@needs_postgres
async def test_results_that_come_at_once_to_two_processes_begin_one_turn_and_each_request_has_its_answer() -> None:
    for _ in range(5):
        async with two([ASK_PAINT, *["Painted."] * 4], ["Painted."] * 4) as both:
            answers = await send_at_once(both, await begin_with_a_call(both[0]), 4)
            stored = await read_stored(both[0])
            asked = sum(len(read_requests(service)) for service in both)
        assert (answers, asked) == ([(200, "Painted.")] * 4, 2)
        assert stored[2:] == [("tool", "red it is"), ("assistant", "Painted.")]


async def test_a_front_end_that_closes_one_of_two_connections_does_not_stop_the_turn() -> None:
    """React's strict mode sends a request twice, and closes the first connection."""
    gate = Gate()
    server = MCPServer("maths")

    @server.tool()
    async def wait() -> str:
        """Waits."""
        await gate.passed()
        return "waited"

    calls = {"tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([ASK_PAINT, calls, "Painted."], {"maths": server}, allow=["maths/*"]) as service:
        body = await begin_with_a_call(service)
        async with AsyncExitStack() as first, AsyncExitStack() as second:
            await first.enter_async_context(service.http.stream("POST", f"{service.url}/ag-ui", json=body))
            await gate.begun.wait()
            stream = await second.enter_async_context(service.http.stream("POST", f"{service.url}/ag-ui", json=body))
            lines = stream.aiter_lines()
            started = await anext(lines)
            await first.aclose()
            for _ in range(5):  # the service has noticed the closed connection by the time it has answered these
                await service.json("GET", "/conversations")
            gate.open.set()
            rest = [line async for line in lines]
    assert "RUN_STARTED" in started
    assert "Painted." in str(rest) and "cancelled" not in str(rest)


async def test_results_whose_turn_is_not_known_any_more_are_refused_in_words(tmp_path: Path) -> None:
    async with serve([ASK_PAINT, "Painted."], store=SQLStore(tmp_path / "chats.db")) as service:
        body = await begin_with_a_call(service)
        await service.http.post(f"{service.url}/ag-ui", json=body)
    async with serve(["Never."], store=SQLStore(tmp_path / "chats.db")) as service:
        refused = await service.http.post(f"{service.url}/ag-ui", json=body)
        (listed,) = (await service.json("GET", "/conversations"))["conversations"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "results_taken")
    assert refused.headers["x-conversation-id"] == listed["id"]


async def test_the_chat_of_the_ai_sdk_runs_its_own_tools_in_one_message(package: str) -> None:
    pen = Pen()
    runs = {"paint": {"output": {"was": "white"}}}
    async with serve([BOTH, ASK_PAINT, "Painted."], {"pen": pen.server}, allow=["pen/*"]) as service:
        chat = await run_ai_sdk(service.url, TOKEN, [GO], package=package, body=BODY, runs=runs, waits=3)
        stored = await read_stored(service)
    assert (chat["status"], chat.get("error"), pen.written) == ("ready", None, ["a"])
    assert [call["toolName"] for call in chat["called"]] == ["paint"] * 2
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant"]
    parts = [part for part in chat["messages"][1]["parts"] if part["type"] == "tool-paint"]
    assert [(part["state"], part["input"]) for part in parts] == [("output-available", {"colour": "red"})] * 2
    assert [part["text"] for part in chat["messages"][1]["parts"] if part["type"] == "text"] == ["I paint.", "Painted."]
    assert [text for role, text in stored if role == "tool"] == [
        '{"was": "white"}', "written: a", '{"was": "white"}',
    ]  # fmt: skip


async def test_an_error_of_a_tool_of_the_chat_reaches_the_model(package: str) -> None:
    async with serve([ASK_PAINT, "No paint."]) as service:
        steps: list[dict[str, Any]] = [GO, {"outputs": [{"state": "output-error", "errorText": "the pot is empty"}]}]
        chat = await run_ai_sdk(service.url, TOKEN, steps, package=package, body=BODY)
        stored = await read_stored(service)
        last = read_requests(service)[-1].messages[-1]
    assert (chat["status"], chat.get("error")) == ("ready", None)
    assert stored[2:] == [("tool", "the pot is empty"), ("assistant", "No paint.")]
    assert last.is_error


@pytest.mark.parametrize("step", [{"regenerate": True}, {"send": "Never mind."}])
async def test_a_chat_whose_tool_has_not_run_goes_on_without_its_result(step: dict[str, Any], package: str) -> None:
    async with serve([ASK_PAINT, "Without paint."]) as service:
        waiting = await run_ai_sdk(service.url, TOKEN, [GO], package=package, body=BODY)
        chat = await run_ai_sdk(service.url, TOKEN, [step], package=package, body=BODY, messages=waiting["messages"])
        stored = await read_stored(service)
    assert [part["state"] for part in waiting["messages"][1]["parts"] if part["type"] == "tool-paint"] == [
        "input-available"
    ]
    assert (chat["status"], chat.get("error")) == ("ready", None)
    assert chat["messages"][-1]["parts"][-1]["text"] == stored[-1][1] == "Without paint."
    assert ("tool" in [role for role, _ in stored]) == ("send" in step)


async def test_a_chat_gets_its_results_and_the_message_after_them_to_the_model(package: str) -> None:
    async with serve([ASK_PAINT, "Both."]) as service:
        waiting = await run_ai_sdk(service.url, TOKEN, [GO], package=package, body=BODY)
        (part,) = [part for part in waiting["messages"][1]["parts"] if part["type"] == "tool-paint"]
        part |= {"state": "output-available", "output": 3}
        messages = waiting["messages"]
        chat = await run_ai_sdk(
            service.url, TOKEN, [{"send": "And now?"}], package=package, body=BODY, messages=messages
        )
        stored = await read_stored(service)
    assert (chat["status"], chat.get("error"), len(chat["messages"])) == ("ready", None, 4)
    assert stored[2:] == [("tool", "3"), ("user", "And now?"), ("assistant", "Both.")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ag-ui", {"tools": [3]}),
        ("/ag-ui", {"tools": [{"description": "No name."}]}),
        ("/ag-ui", {"tools": [PAINT, PAINT]}),
        ("/ag-ui", {"messages": [{"role": "tool", "content": "red"}]}),
        ("/ai-sdk/chat", {"tools": [PAINT]}),
        ("/ai-sdk/chat", {"tools": {"paint": 3}}),
        ("/ai-sdk/chat", {"messages": [{"role": "assistant", "parts": [{"type": "tool-paint", "state": "call"}]}]}),
    ],
)
async def test_malformed_tools_and_results_are_refused_in_words(path: str, body: dict[str, Any]) -> None:
    content = {"content": "Hi."} if path == "/ag-ui" else {"parts": [{"type": "text", "text": "Hi."}]}
    ids = {"threadId": "a", "runId": "b"} if path == "/ag-ui" else {"id": "a"}
    async with serve(["Never."]) as service:
        refused = await service.json("POST", path, 400, json=ids | {"messages": [{"role": "user", **content}]} | body)
    assert refused["error"]["message"]
