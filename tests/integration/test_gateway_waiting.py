"""Requests of clients that wait for answers, in revision 2026-07-28: how long, how many, and whose."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context
from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    InputResponseRequestParams,
    ListPromptsResult,
    ListResourcesResult,
    ListRootsRequest,
    ListRootsResult,
    ListToolsResult,
    Prompt,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
)

from tests.inner import SEPARATE_SECONDS, STATE_SECONDS, suspended_calls
from tests.support.fakes import virtual_time
from tests.support.gateway_clients import Person, asking, connected, text_of
from tests.support.gateways import MODES
from tests.support.program import python_server
from tests.support.servers import questions
from tests.support.servers.launch import HERE

pytestmark = pytest.mark.anyio
NEW = "2026-07-28"
YES = ElicitResult(action="accept", content={"yes": True})


def shop(ended: list[str] | None = None) -> MCPServer:
    """Return a server that asks, and records the calls that ended in `ended`."""
    server = questions.make()

    @server.tool()
    async def asks_and_ends(context: Context, name: str = "") -> str:
        """Ask as servers of 2025 do, and record the end."""
        try:
            answer = await context.elicit("Sure?", questions.Sure)
        finally:
            if ended is not None:
                ended.append(name)
        return answer.action

    return server


async def begin(client: Client, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    """Make one request of a call, without repeating it for the questions."""
    return await client.session.call_tool(tool, arguments or {}, allow_input_required=True, **more)


async def begin_question(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> InputRequiredResult:
    result = await begin(client, tool, arguments)
    if not isinstance(result, InputRequiredResult):  # the server is reopened with the older protocol
        result = await begin(client, tool, arguments)
    assert isinstance(result, InputRequiredResult), result
    return result


def answer(asked: InputRequiredResult, result: Any) -> dict[str, Any]:
    return {"input_responses": dict.fromkeys(asked.input_requests or {}, result), "request_state": asked.request_state}


async def test_a_call_goes_on_when_its_client_comes_back(tmp_path: Path) -> None:
    async with (
        asking({"shop": shop()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "shop__asks_and_ends")
        (request,) = (asked.input_requests or {}).values()
        assert isinstance(request, ElicitRequest)
        assert text_of(await begin(client, "shop__asks_and_ends", **answer(asked, YES))) == "accept"


async def test_an_answer_of_another_kind_is_refused_and_the_call_goes_on_waiting(tmp_path: Path) -> None:
    async with (
        asking({"shop": shop()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "shop__asks_and_ends")
        with pytest.raises(MCPError, match="is not an answer to its request"):
            await begin(client, "shop__asks_and_ends", **answer(asked, ListRootsResult(roots=[])))
        assert not (await begin(client, "shop__asks_and_ends", **answer(asked, YES))).is_error


async def test_only_the_client_that_was_asked_can_answer(tmp_path: Path) -> None:
    async with (
        asking({"shop": shop()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES, name="ann")) as hers,
        connected(gateway, NEW, Person(YES, name="bob")) as his,
        connected(gateway, NEW, Person(YES, name="ann")) as her_second,
    ):
        asked = await begin_question(hers, "shop__asks_and_ends")
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await begin(his, "shop__asks_and_ends", **answer(asked, YES))
        lost = await begin(her_second, "shop__asks_and_ends", **answer(asked, YES))
        assert lost.is_error, "another connection of the same program"
        assert "does not any more" in text_of(lost)
        assert text_of(await begin(hers, "shop__asks_and_ends", **answer(asked, YES))) == "accept"


async def test_questions_are_answered_once(tmp_path: Path) -> None:
    async with (
        asking({"shop": shop()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        first = await begin_question(client, "shop__many", {"times": 2})
        second = await begin(client, "shop__many", {"times": 2}, **answer(first, YES))
        assert isinstance(second, InputRequiredResult)
        with pytest.raises(MCPError, match="answered already"):
            await begin(client, "shop__many", {"times": 2}, **answer(first, YES))
        done = await begin(client, "shop__many", {"times": 2}, **answer(second, YES))
    assert text_of(done) == "2 asked, at last: accept"


async def test_a_question_without_an_answer_stays_open(tmp_path: Path) -> None:
    async with (
        asking({"shop": shop()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "shop__asks_and_ends")
        again = await begin(client, "shop__asks_and_ends", request_state=asked.request_state)
        assert isinstance(again, InputRequiredResult)
        assert again.input_requests == asked.input_requests
        assert text_of(await begin(client, "shop__asks_and_ends", **answer(again, YES))) == "accept"


async def test_a_restart_of_the_gateway_is_an_error_that_says_so(tmp_path: Path) -> None:
    ended: list[str] = []
    async with (
        asking({"shop": shop(ended)}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "shop__asks_and_ends", {"name": "first"})
        ended.clear()  # of the attempt before the server was reopened
    assert ended == ["first"], "the call at the server ends with the gateway"
    async with (
        asking({"shop": shop()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        result = await begin(client, "shop__asks_and_ends", {"name": "first"}, **answer(asked, YES))
    assert result.is_error
    assert "the gateway was restarted" in text_of(result)
    assert "may have done a part of its work" in text_of(result)


@virtual_time
async def test_a_call_whose_client_does_not_come_back_is_cancelled_at_the_server(tmp_path: Path) -> None:
    ended: list[str] = []
    async with (
        asking({"shop": shop(ended)}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "shop__asks_and_ends", {"name": "first"})
        ended.clear()
        await anyio.sleep(suspended_calls.SUSPENDED_SECONDS - 1)
        assert ended == []
        await anyio.sleep(2)
        assert ended == ["first"]
        late = await begin(client, "shop__asks_and_ends", {"name": "first"}, **answer(asked, YES))
    assert late.is_error
    assert "the answer came too late" in text_of(late)


async def test_the_number_of_waiting_calls_of_one_client_is_limited(tmp_path: Path) -> None:
    # A server of the older revision answers one client at a time, if it asks: each call is at another server.
    shops = {f"shop-{number}": shop() for number in range(suspended_calls.MAX_OF_CLIENT + 1)}
    async with asking(shops, "*", folder=tmp_path) as gateway, connected(gateway, NEW, Person(YES)) as client:
        first, *rest = shops
        for name in rest:
            await begin_question(client, f"{name}__asks_and_ends")
        with pytest.raises(MCPError, match="Too many requests wait"):
            await begin_question(client, f"{first}__asks_and_ends")


async def test_a_client_that_gives_up_its_call_ends_it_at_the_server(tmp_path: Path) -> None:
    ended: list[str] = []
    started = anyio.Event()
    server = MCPServer("slow")

    @server.tool()
    async def waits() -> str:
        """Wait for ever."""
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            ended.append("waits")
        return ""

    async with (
        asking({"slow": server}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(client.call_tool, "slow__waits")
        await started.wait()
        group.cancel_scope.cancel()
    assert ended == ["waits"]


REQUESTS: dict[str, Any] = {
    "sure": ElicitRequest(
        params=ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
    ),
    "word": CreateMessageRequest(params=CreateMessageRequestParams(messages=[], max_tokens=5)),
    "folders": ListRootsRequest(),
}


def curious() -> Server[Any]:
    """Return a server that requires three inputs for whatever it is asked."""

    def is_answered(params: InputResponseRequestParams) -> bool:
        return set(params.input_responses or {}) == set(REQUESTS) and params.request_state == "mine"

    required = InputRequiredResult(input_requests=dict(REQUESTS), request_state="mine")

    async def list_tools(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="ask", input_schema={"type": "object"})])

    async def call_tool(_: object, params: Any) -> CallToolResult | InputRequiredResult:
        return CallToolResult(content=[TextContent(text="answered")]) if is_answered(params) else required

    async def list_resources(*_: object) -> ListResourcesResult:
        return ListResourcesResult(resources=[Resource(uri="file:///a", name="a")])

    async def read_resource(_: object, params: Any) -> ReadResourceResult | InputRequiredResult:
        text = TextResourceContents(uri="file:///a", text="answered")
        return ReadResourceResult(contents=[text]) if is_answered(params) else required

    async def list_prompts(*_: object) -> ListPromptsResult:
        return ListPromptsResult(prompts=[Prompt(name="p")])

    async def get_prompt(_: object, params: Any) -> GetPromptResult | InputRequiredResult:
        return GetPromptResult(description="answered", messages=[]) if is_answered(params) else required

    return Server(
        "curious",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


async def test_questions_that_a_server_asks_together_reach_the_client_together(tmp_path: Path) -> None:
    async with (
        asking({"it": curious()}, "*", folder=tmp_path) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "it__ask")
        kinds = {key: type(request) for key, request in (asked.input_requests or {}).items()}
        assert kinds == {"sure": ElicitRequest, "word": CreateMessageRequest, "folders": ListRootsRequest}
        assert text_of(await client.call_tool("it__ask")) == "answered"


ANSWERS: dict[str, Any] = {
    "sure": YES,
    "word": CreateMessageResult(role="assistant", content=TextContent(text="word"), model="m"),
    "folders": ListRootsResult(roots=[]),
}


async def test_the_answers_to_a_server_that_asks_by_its_result_survive_a_restart_and_reach_no_other_server(
    tmp_path: Path,
) -> None:
    """Nothing of the call is open meanwhile: the server's own state is inside the sealed state of the gateway."""
    twins = {"it": curious(), "other": curious()}
    async with asking(twins, "*", folder=tmp_path) as gateway, connected(gateway, NEW, Person(YES)) as client:
        asked = await begin_question(client, "it__ask")
        assert "mine" not in str(asked.request_state), "the state is sealed"
        given: dict[str, Any] = {"input_responses": ANSWERS, "request_state": asked.request_state}
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await begin(client, "other__ask", **given)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await begin(client, "it__ask", input_responses=ANSWERS, request_state="mine")
    async with asking(twins, "*", folder=tmp_path) as gateway:
        async with connected(gateway, NEW, Person(YES, name="bob")) as his:
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await begin(his, "it__ask", **given)
        async with connected(gateway, NEW, Person(YES)) as client:
            assert text_of(await begin(client, "it__ask", **given)) == "answered"
            without = await begin(client, "it__ask", input_responses=ANSWERS)
            assert isinstance(without, InputRequiredResult), "the server wants its state back"


async def test_an_approved_call_goes_on_once_with_the_answers_to_its_server(tmp_path: Path) -> None:
    once = ElicitResult(action="accept", content={"decision": "once"})
    async with asking({"it": curious()}, folder=tmp_path) as gateway, connected(gateway, NEW, Person(YES)) as client:
        approval = await begin_question(client, "it__ask")
        assert set(approval.input_requests or {}) == {"approval"}
        early = await begin(client, "it__ask", input_responses=ANSWERS, request_state=approval.request_state)
        assert set(early.input_requests or {}) == {"approval"}, "answers to the server are no approval"
        asked = await begin(client, "it__ask", **answer(early, once))
        assert set(asked.input_requests or {}) == set(REQUESTS)
        given: dict[str, Any] = {"input_responses": ANSWERS, "request_state": asked.request_state}
        assert text_of(await begin(client, "it__ask", **given)) == "answered"
        again = await begin(client, "it__ask", **given)
        assert set(again.input_requests or {}) == {"approval"}, "the approval was for one call"


async def test_configured_roots_and_the_answers_of_the_client_reach_the_server_together(tmp_path: Path) -> None:
    async with (
        asking({"it": curious()}, "*", folder=tmp_path, callbacks={"roots": [tmp_path]}) as gateway,
        connected(gateway, NEW, Person(YES)) as client,
    ):
        asked = await begin_question(client, "it__ask")
        assert set(asked.input_requests or {}) == {"sure", "word"}
        answers = {key: ANSWERS[key] for key in ("sure", "word")}
        done = await begin(client, "it__ask", input_responses=answers, request_state=asked.request_state)
    assert text_of(done) == "answered"


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_question_of_a_server_per_client_goes_on_in_the_session_of_its_client(era: str, tmp_path: Path) -> None:
    """The server signs its state with a key of its process: only the session that has asked accepts the answers.

    Nothing is in flight meanwhile, but the session stays as long as an answer may come.
    """
    assert SEPARATE_SECONDS >= STATE_SECONDS
    servers = {"both": python_server(HERE / "interleaved.py", protocol=era, perClient=True)}
    once = ElicitResult(action="accept", content={"decision": "once"})
    async with asking(servers, folder=tmp_path) as gateway, AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(connected(gateway, NEW, Person(YES, name=name)))
            for name in ("ann", "bob")
        }
        asked: dict[str, InputRequiredResult] = {}
        for name, client in clients.items():
            word = {"word": f"a word of {name}"}
            approval = await begin_question(client, "both__elicit", word)
            assert set(approval.input_requests or {}) == {"approval"}
            asked[name] = await begin(client, "both__elicit", word, **answer(approval, once))
            (question,) = (asked[name].input_requests or {}).values()
            assert isinstance(question, ElicitRequest)
            assert question.params.message == f"both asks: a word of {name}: who?"
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await begin(clients["bob"], "both__elicit", {"word": "a word of ann"}, **answer(asked["ann"], YES))
        for name, client in clients.items():
            given = ElicitResult(action="accept", content={"name": name})
            result = await begin(client, "both__elicit", {"word": f"a word of {name}"}, **answer(asked[name], given))
            assert text_of(result) == f"a word of {name} {name}"
        connection = gateway.dial.parts.servers["both"]
        assert len(connection.separate.connections) == 2


@pytest.mark.parametrize("mode", MODES)
async def test_resources_and_prompts_may_need_answers_too(mode: str, tmp_path: Path) -> None:
    person = Person(YES)
    async with asking({"it": curious()}, "*", folder=tmp_path) as gateway, connected(gateway, mode, person) as client:
        (contents,) = (await client.read_resource("dial+it:file:///a")).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "answered"
        assert (await client.get_prompt("it__p")).description == "answered"
    assert (len(person.asked), len(person.sampled), person.roots_asked) == (2, 2, 2)
