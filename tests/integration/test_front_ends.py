"""Front ends of others at the service: the AI SDK's chat and AG-UI's agent, with their npm packages."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from dial_client import Agent, ServerChanged
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
from tests.support.front_end_clients import NPM, needs_front_ends, run_ag_ui, run_ai_sdk
from tests.support.http_service import TOKEN, HttpService, serve
from tests.support.node_program import run_node
from tests.support.temporary_stores import needs_postgres

pytestmark = [pytest.mark.anyio, needs_front_ends]

WRITE = {"tool_calls": [{"name": "write", "arguments": {"what": "a"}}], "reasoning": "A pen can do that."}
TWO = {"tool_calls": [{"name": "write", "arguments": {"what": what}} for what in "ab"], "text": "I write."}
ASK = {"tool_calls": [{"name": "ask", "arguments": {}}]}
FAIL = {"tool_calls": [{"name": "fail", "arguments": {}}]}
GO = {"send": "Go!"}
# Two calls of one agent at the same time, whose own calls have equal ids.
PAIR = {"tool_calls": [{"name": "writer", "arguments": {"task": what}, "id": what} for what in "xy"]}
INNER = {"tool_calls": [{"name": "write", "arguments": {"what": "a"}, "id": "same"}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Pen:
    """A server that writes, fails, waits, and asks."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.cancelled = anyio.Event()
        self.server = MCPServer("pen")

        class Age(BaseModel):
            age: int

        @self.server.tool()
        def write(what: str) -> str:
            """Writes."""
            self.written.append(what)
            return f"written: {what}"

        @self.server.tool()
        def fail() -> str:
            """Fails."""
            raise ToolError("no ink")

        @self.server.tool()
        async def wait(ctx: Context) -> str:
            """Waits for ever."""
            await ctx.report_progress(1, 2)
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
            return "never"

        @self.server.tool()
        async def ask(ctx: Context) -> str:
            """Asks."""
            answer = await ctx.elicit("How old are you?", Age)
            return f"{answer.action}: {answer.data.age if answer.action == 'accept' else '?'}"


def find_parts(chat: Any, kind: str) -> list[Any]:
    return [part for message in chat["messages"] for part in message["parts"] if part["type"] == kind]


def find_types(agent: Any) -> list[str]:
    return [event["type"] for event in agent["events"] if event["type"] != "CUSTOM"]


async def list_conversations(service: HttpService) -> list[Any]:
    found: list[Any] = (await service.json("GET", "/conversations"))["conversations"]
    return found


async def test_a_chat_of_the_ai_sdk_shows_text_reasoning_calls_and_usage(package: str) -> None:
    pen = Pen()
    replies = [WRITE, "Done.", FAIL, "It failed.", "You are welcome."]
    async with serve(replies, {"pen": pen.server}, allow=["pen/*"]) as service:
        steps = [GO, {"send": "Fail!"}, {"send": "Thanks."}]
        chat = await run_ai_sdk(service.url, TOKEN, steps, package=package)
        stored = await service.json("GET", f"/conversations/{chat['messages'][1]['metadata']['conversationId']}")
    first, failed = find_parts(chat, "dynamic-tool")
    assert chat["status"] == "ready" and chat.get("error") is None
    assert chat["responses"] == [[200, "v1"]] * 3
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant"] * 3
    assert [part["text"] for part in find_parts(chat, "text")] == [
        "Go!", "Done.", "Fail!", "It failed.", "Thanks.", "You are welcome.",
    ]  # fmt: skip
    assert [part["text"] for part in find_parts(chat, "reasoning")] == ["A pen can do that."]
    assert (first["state"], first["toolName"], first["input"]) == ("output-available", "write", {"what": "a"})
    assert (first["output"], first["providerExecuted"]) == ("written: a", True)
    assert failed["state"] == "output-error" and "no ink" in failed["errorText"]
    assert chat["messages"][1]["metadata"]["stopReason"] == "answered"
    assert "input_tokens" in chat["messages"][1]["metadata"]["usage"]
    assert [message["role"] for message in stored["messages"] if message["role"] != "tool"] == (
        ["user", "assistant", "assistant"] * 2 + ["user", "assistant"]
    )


async def test_a_call_waits_until_the_chat_of_the_ai_sdk_approves_it(package: str) -> None:
    pen = Pen()
    async with serve([TWO, "Done."], {"pen": pen.server}) as service:
        waiting = await run_ai_sdk(service.url, TOKEN, [GO], package=package)
        before = list(pen.written)
        steps = [{"decide": [True, False], "reason": "one is enough"}]
        chat = await run_ai_sdk(service.url, TOKEN, steps, package=package, messages=waiting["messages"])
        pending = await service.json("GET", "/approvals")
    assert [part["state"] for part in find_parts(waiting, "dynamic-tool")] == ["approval-requested"] * 2
    details = find_parts(waiting, "data-approval")
    assert sorted(part["data"]["call"]["arguments"]["what"] for part in details) == ["a", "b"]
    assert before == [] and pen.written == ["a"] and pending == {"approvals": []}
    assert [part["state"] for part in find_parts(chat, "dynamic-tool")] == ["output-available", "output-denied"]
    assert find_parts(chat, "text")[-1]["text"] == "Done."
    assert len(chat["messages"]) == 2  # the answer goes on in the message that asked


async def test_the_calls_of_agents_are_parts_of_the_chat_and_wait_for_its_approval(package: str) -> None:
    pen = Pen()
    writer = Agent("writer", "Writes.", model=ScriptedProvider([INNER, INNER, "Written.", "Written."]))
    async with serve([PAIR, "Done."], {"pen": pen.server}, agents=[writer]) as service:
        waiting = await run_ai_sdk(service.url, TOKEN, [GO], package=package)
        before = list(pen.written)
        steps = [{"decide": [True, False]}]
        chat = await run_ai_sdk(service.url, TOKEN, steps, package=package, messages=waiting["messages"])
    asked = [part for part in find_parts(waiting, "dynamic-tool") if part["state"] == "approval-requested"]
    calls = {part["toolCallId"]: part for part in find_parts(waiting, "dynamic-tool")}
    metadata = [part["callProviderMetadata"]["dial"] for part in asked]
    assert (waiting.get("error"), before) == (None, [])
    assert [(part["toolName"], part["input"]) for part in asked] == [("write", {"what": "a"})] * 2
    assert [about["agent"] for about in metadata] == ["main > writer"] * 2
    assert {calls[about["parent"]]["input"]["task"] for about in metadata} == {"x", "y"}
    assert {part["data"]["toolCallId"] for part in find_parts(waiting, "data-approval")} == calls.keys() - {
        about["parent"] for about in metadata
    }
    assert (chat["status"], chat.get("error"), len(chat["messages"])) == ("ready", None, 2)
    ended = {part["toolCallId"]: part for part in find_parts(chat, "dynamic-tool")}
    assert [ended[part["toolCallId"]]["state"] for part in asked] == ["output-available", "output-denied"]
    assert [ended[about["parent"]]["output"] for about in metadata] == ["Written."] * 2
    assert (pen.written, find_parts(chat, "text")[-1]["text"]) == (["a"], "Done.")


async def test_the_calls_of_a_program_wait_for_the_approval_of_a_chat_and_of_a_run() -> None:
    source = "import asyncio\nawait asyncio.gather(write(what='a'), write(what='b'))"
    program = {"tool_calls": [{"name": "run_code", "arguments": {"code": source}, "id": "p"}]}
    pen = Pen()
    async with serve([program, "Done."] * 2, {"pen": pen.server}, tool_format="code") as service:
        chat = await run_ai_sdk(service.url, TOKEN, [GO, {"decide": [True, True]}])
        answers = [{"status": "resolved", "payload": {"approved": True}}] * 2
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"answers": answers}])
    outer, *inner = find_parts(chat, "dynamic-tool")
    assert (chat.get("error"), sorted(pen.written)) == (None, ["a", "a", "b", "b"])
    assert [part["callProviderMetadata"]["dial"]["parent"] for part in inner] == [outer["toolCallId"]] * 2
    assert [part["state"] for part in (outer, *inner)] == ["output-available"] * 3
    assert "written: a" in outer["output"]
    assert (agent["failures"], len(agent["interrupts"]), agent["messages"][-1]["content"]) == ([], 2, "Done.")
    first, *rest = [event for event in agent["events"] if event["type"] == "TOOL_CALL_START"]
    assert [event["metadata"]["dial"]["parent"] for event in rest] == [first["toolCallId"]] * 2


async def test_the_chat_of_the_ai_sdk_changes_and_repeats_a_question(package: str) -> None:
    async with serve(["One.", "Two.", "Three.", "Four."]) as service:
        steps: list[dict[str, Any]] = [GO, {"send": "More."}, {"regenerate": True}]
        steps.append({"edit": "Another way.", "at": 0})
        chat = await run_ai_sdk(service.url, TOKEN, steps, package=package)
        (conversation,) = await list_conversations(service)
        stored = await service.json("GET", f"/conversations/{conversation['id']}")
    assert [part["text"] for part in find_parts(chat, "text")] == ["Another way.", "Four."]
    assert [message["content"] for message in stored["messages"]] == ["Another way.", "Four."]
    assert [versions["of"] for versions in stored["versions"]] == ["question"]


async def test_a_chat_that_stops_its_stream_stops_the_turn_and_its_call(package: str) -> None:
    pen = Pen()
    wait = {"tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([wait, "Never."], {"pen": pen.server}, allow=["pen/*"]) as service:
        chat = await run_ai_sdk(service.url, TOKEN, [GO], package=package, stopAt="data-tool-progress")
        await pen.cancelled.wait()
    assert chat["status"] == "ready"


async def test_a_chat_that_comes_back_reads_the_turn_that_waits(package: str) -> None:
    pen = Pen()
    async with serve([WRITE, "Done."], {"pen": pen.server}) as service:
        none = await run_ai_sdk(service.url, TOKEN, [{"resume": True}], package=package)
        await run_ai_sdk(service.url, TOKEN, [GO], package=package)
        again = await run_ai_sdk(service.url, TOKEN, [{"resume": True}, {"decide": [True]}], package=package)
    assert none["messages"] == [] and none["responses"] == [[204, None]]
    assert [part["state"] for part in find_parts(again, "dynamic-tool")] == ["output-available"]
    assert find_parts(again, "text")[-1]["text"] == "Done."


async def test_a_file_in_a_chat_reaches_the_model() -> None:
    file = {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,aGVsbG8="}
    async with serve(["Read."]) as service:
        await run_ai_sdk(service.url, TOKEN, [{"send": "Read it.", "files": [file]}])
        (conversation,) = await list_conversations(service)
        stored = await service.json("GET", f"/conversations/{conversation['id']}")
    assert "hello" in str(stored["messages"][0]["content"])


async def test_an_error_of_the_model_is_an_error_of_the_chat_and_of_the_run() -> None:
    broken = {"error": {"status": 400, "message": "no such model"}}
    async with serve([broken, broken]) as service:
        chat = await run_ai_sdk(service.url, TOKEN, [GO])
        agent = await run_ag_ui(service.url, TOKEN, [GO])
    assert chat["status"] == "error" and "no such model" in chat["error"]
    assert "no such model" in str(agent["failures"]) or "no such model" in str(agent["events"])


async def test_a_chat_whose_earlier_messages_are_not_here_is_told_so() -> None:
    messages = [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello."}]},
        {"id": "2", "role": "assistant", "parts": [{"type": "text", "text": "Hello!"}]},
    ]
    async with serve(["Never."]) as service:
        chat = await run_ai_sdk(service.url, TOKEN, [GO], messages=messages)
    assert "does not have the earlier messages of this chat" in chat["error"]


async def test_an_agent_of_ag_ui_shows_text_reasoning_calls_and_usage() -> None:
    pen = Pen()
    async with serve([WRITE, "Done.", "Again."], {"pen": pen.server}, allow=["pen/*"]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"send": "More."}])
    assert agent["failures"] == []
    assert find_types(agent) == [
        "RUN_STARTED", "STEP_STARTED",
        "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END", "REASONING_END",
        "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
        "STEP_FINISHED", "STEP_STARTED",
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
        "STEP_FINISHED", "RUN_FINISHED",
        "RUN_STARTED", "STEP_STARTED",
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
        "STEP_FINISHED", "RUN_FINISHED",
    ]  # fmt: skip
    assert [(message["role"], message.get("content")) for message in agent["messages"]] == [
        ("user", "Go!"),
        ("reasoning", "A pen can do that."),
        ("assistant", None),
        ("tool", "written: a"),
        ("assistant", "Done."),
        ("user", "More."),
        ("assistant", "Again."),
    ]
    finished = [event for event in agent["events"] if event["type"] == "RUN_FINISHED"][-1]
    assert finished["outcome"] == {"type": "success"} and finished["result"]["stopReason"] == "answered"
    assert finished["usage"][0]["inputTokens"] >= 0


async def test_calls_wait_until_the_agent_of_ag_ui_answers_its_interrupts() -> None:
    pen = Pen()
    answers = [
        {"status": "resolved", "payload": {"approved": True, "editedArgs": {"what": "c"}}},
        {"status": "cancelled"},
    ]
    async with serve([TWO, "Done."], {"pen": pen.server}) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"answers": answers}])
    assert agent["failures"] == [] and agent["open"] == []
    assert [interrupt["reason"] for interrupt in agent["interrupts"]] == ["tool_call"] * 2
    assert agent["interrupts"][0]["message"] == "pen: may write run?"
    assert pen.written == ["c"]
    results = [event["metadata"]["dial"]["success"] for event in agent["events"] if event["type"] == "TOOL_CALL_RESULT"]
    assert sorted(results) == [False, True]
    assert agent["messages"][-1]["content"] == "Done."


async def test_agents_are_subagents_of_ag_ui_and_their_calls_are_interrupts() -> None:
    pen = Pen()
    worker = Agent("worker", "Works.", model=ScriptedProvider([INNER, INNER, "Written.", "Written."]))
    lead = {"tool_calls": [{"name": "worker", "arguments": {"task": "Write."}, "id": "same"}]}
    writer = Agent("writer", "Leads.", tools=["agents/worker"], model=ScriptedProvider([lead, lead, "Led.", "Led."]))
    async with serve([PAIR, "Done."], {"pen": pen.server}, agents=[writer, worker]) as service:
        answers = [{"status": "resolved", "payload": {"approved": approved}} for approved in (True, False)]
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"answers": answers}])
    interrupts, runs = agent["interrupts"], [event for event in agent["events"] if event["type"] == "SUBAGENT_STARTED"]
    assert (agent["failures"], agent["open"], len(interrupts)) == ([], [], 2)
    names = {run["subagentRunId"]: run["name"] for run in runs}
    parents = {run["subagentRunId"]: run.get("parentSubagentRunId") for run in runs}
    calls = {event["toolCallId"]: event for event in agent["events"] if event["type"] == "TOOL_CALL_START"}
    assert sorted(names.values()) == ["worker", "worker", "writer", "writer"]
    for interrupt in interrupts:
        run = interrupt["subagentRunId"]
        assert (names[run], names[parents[run]]) == ("worker", "writer")
        assert calls[interrupt["toolCallId"]]["toolCallName"] == "write"
        assert calls[interrupt["toolCallId"]]["subagentRunId"] == run
    ends = [event for event in agent["events"] if event["type"] == "SUBAGENT_FINISHED"]
    suspended = [end for end in ends if end.get("outcome", {}).get("type") == "suspended"]
    assert [len(suspended), len(ends), len(runs)] == [4, 8, 8]
    assert sorted(id_ for end in suspended for id_ in end["outcome"]["interruptIds"]) == sorted(
        interrupt["id"] for interrupt in interrupts
    )
    results = {
        event["toolCallId"]: event["content"] for event in agent["events"] if event["type"] == "TOOL_CALL_RESULT"
    }
    assert [results[interrupt["toolCallId"]][:10] for interrupt in interrupts] == ["written: a", "The user d"]
    assert (pen.written, agent["messages"][-1]["content"]) == (["a"], "Done.")


async def test_the_programs_of_the_documentation_for_ag_ui_run() -> None:
    pen = Pen()
    page = (Path(__file__).parents[2] / "docs" / "front-ends.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```ts\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    paint = {"tool_calls": [{"name": "paint", "arguments": {"colour": "red"}}]}
    async with serve([WRITE, "Done.", paint, "Red.", "It is."], {"pen": pen.server}) as service:
        program = "\n".join(blocks).replace("http://127.0.0.1:8000", service.url).replace("${TOKEN}", TOKEN)
        program += "\nconsole.log(JSON.stringify(agent.messages));"
        messages = await anyio.to_thread.run_sync(partial(run_node, program, folder=NPM))
        question = read_questions(service)[-1]
    assert len(blocks) == 4 and pen.written == ["a"]
    assert question[0] == "Is the total right?" and "12.50 EUR" in question[1]
    texts = [(message["role"], message.get("content")) for message in messages]
    assert [text for role, text in texts if role == "assistant" and text] == ["Done.", "Red.", "It is."]
    assert ("tool", "painted") in texts


async def test_a_question_of_a_server_is_an_interrupt_with_its_schema() -> None:
    pen = Pen()
    answers = [{"status": "resolved", "payload": {"age": 7}}]
    async with serve([ASK, "Done."], {"pen": pen.server}, allow=["pen/*"]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"answers": answers}])
    (question,) = agent["interrupts"]
    assert (question["reason"], question["message"]) == ("input_required", "How old are you?")
    assert list(question["responseSchema"]["properties"]) == ["age"]
    assert "accept: 7" in str(agent["messages"]) and agent["failures"] == []


def read_questions(service: HttpService) -> list[list[str]]:
    """Return the parts of the last question of each request that the model got."""
    assert isinstance(service.provider, ScriptedProvider)
    questions = [
        [message for message in request.messages if message.role == "user"][-1] for request in service.provider.requests
    ]
    return [
        [question.content] if isinstance(question.content, str) else [str(part.text) for part in question.content]  # type: ignore[union-attr]
        for question in questions
    ]


CONTEXT = [{"description": "The open\npage", "value": "Invoice 7\nof Müller"}]
STATE = "[state of the front end, which only the front end's own tools change]"


async def test_the_model_reads_the_context_and_the_state_of_the_front_end_behind_the_users_text() -> None:
    async with serve(["Hello."]) as service:
        agent = await run_ag_ui(
            service.url, TOKEN, [GO], parameters={"context": CONTEXT}, state={"colour": "rot, grün", "n": [1]}
        )
        (question,) = read_questions(service)
        (listed,) = (await service.json("GET", "/conversations"))["conversations"]
    assert question == [
        "Go!",
        f'{STATE}\n{{"colour": "rot, grün", "n": [1]}}\n[end of context]',
        "[context of the front end: The open page]\nInvoice 7\nof Müller\n[end of context]",
    ]
    assert (agent["failures"], agent["messages"][-1]["content"], listed["title"]) == ([], "Hello.", "Go!")
    assert not [event for event in agent["events"] if event["type"].startswith("STATE_")]


async def test_context_that_has_not_changed_is_read_once_and_what_has_changed_again() -> None:
    async with serve(["One.", "Two.", "Three.", "Four."]) as service:
        for page in ("a", "a", "b", "a"):
            context = [{"description": "The page", "value": page}, {"description": "The user", "value": "Ada"}]
            await run_ag_ui(service.url, TOKEN, [GO], parameters={"context": context})
        questions = read_questions(service)
    pages = [f"[context of the front end: The page]\n{page}\n[end of context]" for page in "ab"]
    user = "[context of the front end: The user]\nAda\n[end of context]"
    assert questions == [["Go!", pages[0], user], ["Go!"], ["Go!", pages[1]], ["Go!", pages[0]]]


async def test_after_context_of_the_front_end_a_call_that_can_act_needs_approval() -> None:
    """The page may show what a stranger has written: it has no more rights than the result of a tool."""
    pen = Pen()
    asks = [{"status": "resolved", "payload": {"approved": False}}]
    async with serve([WRITE, "Not written."], {"pen": pen.server}, allow=["pen/*"]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO, {"answers": asks}], parameters={"context": CONTEXT})
    (asked,) = agent["interrupts"]
    assert "the front end" in asked["metadata"]["dial"]["why_asked"]
    assert (agent["failures"], pen.written) == ([], [])


async def test_context_that_is_too_long_is_left_out_and_the_run_says_so() -> None:
    context = [
        {"description": "The book", "value": "x" * 20_001},
        *({"description": f"{n}", "value": "y"} for n in range(33)),
    ]
    async with serve(["Hello."]) as service:
        agent = await run_ag_ui(service.url, TOKEN, [GO], parameters={"context": context})
        (question,) = read_questions(service)
    statuses = [event["value"]["text"] for event in agent["events"] if event.get("name") == "status"]
    assert (
        "The model does not get the context of the front end: The book: it has more than 20,000 characters" in statuses
    )
    assert "The model gets only the first 32 contexts of the front end" in statuses
    assert (len(question), "xxx" in str(question), agent["failures"]) == (33, False, [])


@pytest.mark.parametrize("context", [[3], [{"value": "x"}], [{"description": "x", "value": 3}], "x"])
async def test_malformed_context_is_refused_in_words(context: Any) -> None:
    body = {"threadId": "a", "runId": "b", "messages": [{"role": "user", "content": "Hi."}], "context": context}
    async with serve(["Never."]) as service:
        refused = await service.json("POST", "/ag-ui", 400, json=body)
    assert "context" in refused["error"]["message"]


async def test_an_agent_that_aborts_its_run_stops_the_turn() -> None:
    pen = Pen()
    wait = {"tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([wait, "Never."], {"pen": pen.server}, allow=["pen/*"]) as service:
        await run_ag_ui(service.url, TOKEN, [GO], stopAt="tool_progress")
        await pen.cancelled.wait()


@pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="tokens are in a database")
async def test_a_person_sees_only_own_chats_and_answers_only_with_the_scope(tmp_path: Any) -> None:
    pen = Pen()
    store = SQLStore(tmp_path / "chats.db")
    await store.open()
    tokens = store.tokens
    assert isinstance(tokens, AccessTokens)
    anna, _ = await tokens.create("a front end", "anna", ("chat", "read"))
    bob, _ = await tokens.create("a front end", "bob", ("chat", "read", "approve"))
    policy = AccessPolicy(authenticator=FirstOf(TokenAuthenticator(TOKEN), PersonalTokens(tokens)))
    options: dict[str, Any] = {"policy": policy, "store": store, "single_user": False}
    async with serve([WRITE, "For Bob.", "Done."], {"pen": pen.server}, **options) as service:
        waiting = await run_ai_sdk(service.url, anna, [GO])
        of_bob = await run_ai_sdk(service.url, bob, [GO])  # the same chat id
        decided = await run_ai_sdk(service.url, anna, [{"decide": [True]}], messages=waiting["messages"])
        shown = await service.http.get("/conversations")
    assert find_parts(waiting, "dynamic-tool")[0]["state"] == "approval-requested"
    assert [part["text"] for part in find_parts(of_bob, "text")] == ["Go!", "For Bob."]
    assert "scope approve" in decided["error"] and pen.written == []
    assert len(shown.json()["conversations"]) == 2


@needs_postgres
async def test_any_process_takes_the_answers_and_goes_on_with_the_turn_of_another() -> None:
    pen = Pen()
    approved = {"status": "resolved", "payload": {"approved": True}}
    servers = {"pen": pen.server}
    async with two([WRITE, "Done.", WRITE, "Again."], servers=servers) as (here, there):
        waiting = await run_ai_sdk(here.url, TOKEN, [GO])
        steps: list[dict[str, Any]] = [{"resume": True}, {"decide": [True]}]
        chat = await run_ai_sdk(there.url, TOKEN, steps)
        asks = await run_ag_ui(here.url, TOKEN, [GO])
        agent = await run_ag_ui(there.url, TOKEN, [{"answers": [approved]}], pending=asks["open"])
    assert [part["state"] for part in find_parts(waiting, "dynamic-tool")] == ["approval-requested"]
    assert [part["state"] for part in find_parts(chat, "dynamic-tool")] == ["output-available"]
    assert find_parts(chat, "text")[-1]["text"] == "Done."
    assert agent["failures"] == [] and agent["messages"][-1]["content"] == "Again."
    assert find_types(agent)[:2] == ["RUN_STARTED", "TOOL_CALL_RESULT"]
    assert pen.written == ["a", "a"]


async def test_a_stream_that_goes_on_does_not_ask_again_what_is_answered() -> None:
    pen = Pen()
    async with serve([TWO, "Done."], {"pen": pen.server}) as service:
        waiting = await run_ai_sdk(service.url, TOKEN, [GO])
        (turn,) = service.turns.conversation_turns
        turn.announce(ServerChanged("pen", "ready"))  # after the requests, and before the answers
        chat = await run_ai_sdk(service.url, TOKEN, [{"decide": [True, True]}], messages=waiting["messages"])
    assert [part["state"] for part in find_parts(chat, "dynamic-tool")] == ["output-available"] * 2
    assert len(chat["responses"]) == 1


@pytest.mark.parametrize("path", ["/ag-ui", "/ai-sdk/chat", "/ai-sdk/chat/a-chat/stream"])
async def test_pages_of_allowed_origins_may_use_the_paths_of_front_ends(path: str) -> None:
    policy = AccessPolicy(TOKEN, origins=frozenset({"http://localhost:3000"}))
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    async with serve([], policy=policy) as service:
        allowed = await service.http.options(path, headers={"origin": "http://localhost:3000", **asks})
        refused = await service.http.options(path, headers={"origin": "http://elsewhere.test", **asks})
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ai-sdk/chat", {"id": "a", "messages": []}),
        ("/ai-sdk/chat", {"id": "a", "messages": [3]}),
        ("/ai-sdk/chat", {"id": "", "messages": [{"role": "user", "parts": [{"type": "text", "text": "Hi."}]}]}),
        ("/ai-sdk/chat", {"id": "a", "messages": [{"role": "assistant", "parts": []}]}),
        ("/ai-sdk/chat", {"id": "a", "messages": [{"role": "user", "parts": []}]}),
        ("/ag-ui", {"threadId": "a"}),
        ("/ag-ui", {"threadId": "a", "runId": "b", "messages": []}),
        ("/ag-ui", {"threadId": "a", "runId": "b", "messages": [{"role": "user", "content": "Hi."}], "tools": "all"}),
        ("/ag-ui", {"threadId": "a", "runId": "b", "messages": [{"role": "user", "content": [{"type": "audio"}]}]}),
        ("/ag-ui", {"threadId": "a", "runId": "b", "messages": [], "resume": [{"status": "resolved"}]}),
    ],
)
async def test_a_malformed_request_of_a_front_end_is_refused_in_words(path: str, body: dict[str, Any]) -> None:
    async with serve(["Never."]) as service:
        refused = await service.json("POST", path, 400, json=body)
    assert refused["error"]["message"]
