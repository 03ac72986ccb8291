"""Requests and notifications of servers to the client: sampling, roots and logs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult

from dial_client import Approval, ConfigError, DialClient, Limits, Message, StopReason, ToolCallRequest, ToolSpec, Usage
from dial_client.extend import ElicitationAnswer, SamplingReply, SamplingRequest, ServerLog
from tests.inner import (
    ApprovalContext,
    ApprovalPolicy,
    Callbacks,
    CallChunk,
    Completion,
    FinishReason,
    TextChunk,
    configuration,
)
from tests.support.fakes import Model, tool_named
from tests.support.program import LONG, python_server
from tests.support.servers import questions
from tests.support.servers.launch import HERE

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

NPM = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / ".bin"
needs_npm = pytest.mark.skipif(not NPM.exists(), reason="npm servers are not here: `make test` installs them with Node")
pushed_or_not = pytest.mark.parametrize("tool", ["samples", "samples_too"])
REFUSED = "User rejected sampling request"


def says(text: str, tokens: int = 10) -> list[Any]:
    return [TextChunk(text), Completion(FinishReason.STOP, Usage(tokens, tokens))]


def calls(name: str, **arguments: Any) -> list[Any]:
    return [CallChunk(ToolCallRequest("call_1", name, arguments)), Completion(FinishReason.TOOL_CALLS)]


async def called(dial: DialClient, tool: str, **arguments: Any) -> str:
    with anyio.fail_after(LONG):
        result = await dial.call(tool, arguments)
    return str(result.content)


# Sampling


@pushed_or_not
@pytest.mark.parametrize("answer", ["A word.", SamplingReply("A word.", "mine")])
async def test_the_sample_callback_answers_sampling_requests(tool: str, answer: Any) -> None:
    asked: list[SamplingRequest] = []

    async def sample(request: SamplingRequest) -> Any:
        asked.append(request)
        return answer

    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(sample=sample)) as dial:
        result = await called(dial, tool)
        assert dial.servers["shop"].protocol_version == ("2025-11-25" if tool == "samples" else "2026-07-28")
    assert "A word." in result
    [request] = asked
    assert (request.server, request.max_tokens, request.tools) == ("shop", 50, (tool,))
    assert request.messages == (Message.user("A word?"),)
    assert request.system == ("Be brief." if tool == "samples" else "")


@pushed_or_not
async def test_sampling_is_refused_by_default(tool: str) -> None:
    model = Model()
    async with DialClient(model, servers={"shop": questions.make()}) as dial:
        answer = await called(dial, tool)
        assert await called(dial, "plain") == "plain"
    assert answer == "The call failed: it asks for a model's reply, and sampling is not enabled"
    assert model.requests == []


@pytest.mark.parametrize("answer", [None, 7, RuntimeError("the key is 1234")])
async def test_a_refusal_or_failure_of_the_callback_is_an_error_of_the_request_only(answer: Any) -> None:
    async def sample(request: SamplingRequest) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(sample=sample)) as dial:
        result = await called(dial, "samples")
        assert await called(dial, "plain") == "plain"
    assert result == str([REFUSED if answer is None else "The host could not answer"])


async def test_the_clients_model_answers_and_the_turn_counts_its_tokens() -> None:
    model = Model(calls("samples_too"), says("A word."), says("Done."))
    async with DialClient(model, servers={"shop": questions.make()}, callbacks=Callbacks(sample="model")) as dial:
        turn = await dial.run([Message.user("Go.")])
    assert turn.stop_reason is StopReason.ANSWERED
    assert turn.tool_calls[0].result.content == "A word."
    assert [m.text for m in model.requests[1].messages] == ["A word?"]
    assert (model.requests[1].tools, model.requests[1].settings.max_tokens) == ((), 50)
    assert turn.usage == Usage(20, 20)


@pytest.mark.parametrize(
    ("limits", "answered"),
    [(Limits(max_sampling_requests=2), 2), (Limits(max_sampling_tokens=73), 3), (Limits(max_sampling_tokens=1), 0)],
)
async def test_sampling_has_a_budget_of_requests_and_tokens(limits: Limits, answered: int) -> None:
    model = Model(*[says("A word.", 12)] * 8)
    async with DialClient(
        model, servers={"shop": questions.make()}, callbacks=Callbacks(sample="model"), limits=limits
    ) as dial:
        answer = await called(dial, "samples", times=5)
        assert answer == str(["A word."] * answered + [REFUSED] * (5 - answered))
        assert len(model.requests) == answered
        again = await called(dial, "samples", times=1)
    assert again == str(["A word."] if answered else [REFUSED])
    assert all((request.settings.max_tokens or 0) <= 50 for request in model.requests)


@pytest.mark.parametrize(("decision", "asked_for"), [("once", 2), ("session", 1), ("deny", 2)])
async def test_sampling_needs_an_approval_that_shows_the_whole_request(decision: str, asked_for: int) -> None:
    model = Model(says("A word."), says("A word."))
    seen: list[tuple[ToolCallRequest, ToolSpec, str]] = []

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        seen.append((call, tool, context.server))
        return Approval(decision)

    servers = {"shop": questions.make()}
    async with DialClient(
        model,
        servers=servers,
        callbacks=Callbacks(sample="model"),
        approve=approve,
        approval=ApprovalPolicy(allow=["shop/samples"], single_user=True),
    ) as dial:
        answer = await called(dial, "samples", times=2)
    assert answer == str(["A word." if decision != "deny" else REFUSED] * 2)
    asked = [request for request in seen if request[1].tool == "sampling/createMessage"]
    assert len(asked) == asked_for
    call, tool, server = asked[0]
    assert (tool.tool, server) == ("sampling/createMessage", "shop")
    assert dict(call.arguments) == {"system": "Be brief.", "1. user": "A word?", "max_tokens": 50}


def test_sampling_by_the_clients_model_requires_a_model() -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        DialClient(callbacks=Callbacks(sample="model"))


# Roots


async def test_a_server_gets_its_configured_roots(tmp_path: Path) -> None:
    async with DialClient(
        servers={"shop": questions.make()}, callbacks=Callbacks(roots=[tmp_path, "file:///srv/data"])
    ) as dial:
        answer = await called(dial, "roots")
    assert answer == f"{tmp_path.name}={tmp_path.as_uri()} data=file:///srv/data"


async def test_no_root_is_sent_without_a_request() -> None:
    async with DialClient(servers={"shop": questions.make()}) as dial:
        answer = await called(dial, "roots")
    assert answer == "The call failed: it asks which folders it may use, and no roots are configured"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_the_roots_of_an_entry_replace_those_of_the_client(tmp_path: Path, protocol: str) -> None:
    shop = python_server(HERE / "questions.py", roots=["here"])
    settings = configuration.parse(
        json.dumps({"mcpServers": {"shop": {**shop, "protocol": protocol}}}), folder=tmp_path
    )
    async with DialClient(servers=settings.servers, callbacks=Callbacks(roots=["/elsewhere"])) as dial:
        answer = await called(dial, "roots")
    assert answer == f"here={(tmp_path / 'here').as_uri()}"


# Logs


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_log_messages_are_sanitized_and_passed_on_and_the_last_are_kept(protocol: str) -> None:
    heard: list[ServerLog] = []
    shop = python_server(HERE / "questions.py", protocol=protocol)
    async with DialClient(servers={"shop": shop}, callbacks=Callbacks(on_log=heard.append)) as dial:
        assert await called(dial, "logs", times=150) == "logged"
        with anyio.fail_after(LONG):
            while len(heard) < 150:  # noqa: ASYNC110 - they come behind the result
                await anyio.sleep(0.01)
        kept = dial.servers["shop"].logs
    assert heard[0] == ServerLog("shop", "info", '{"at": 0, "odd": "\\u001b[2Jred"}', "shop")
    assert kept == tuple(heard[-100:])


async def test_a_failing_log_callback_has_no_effect() -> None:
    def broken(message: ServerLog) -> None:
        raise RuntimeError("no")

    async with DialClient(servers={"shop": questions.make()}, callbacks=Callbacks(on_log=broken)) as dial:
        assert await called(dial, "logs") == "logged"
        assert await called(dial, "plain") == "plain"


def test_an_unknown_log_level_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="unknown log level 'loud'"):
        DialClient(callbacks=Callbacks(log_level="loud"))


# Fields and methods for other clients


async def test_unknown_extensions_and_metadata_are_ignored() -> None:
    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool_named("look", _meta={"ui/resourceUri": "ui://shop/cart"})])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        meta = {"example.test/took": 3}
        return CallToolResult.model_validate({"content": [{"type": "text", "text": "seen"}], "_meta": meta})

    server = Server("shop", on_list_tools=list_tools, on_call_tool=call_tool)
    server.extensions = {"io.modelcontextprotocol/ui": {}, "test.example/unheard-of": {"a": 1}}
    async with DialClient(servers={"shop": server}) as dial:
        assert await called(dial, "look") == "seen"
        assert dial.servers["shop"].notes == ()


# A real server in another language


@pytest.fixture
def everything() -> Iterator[dict[str, Any]]:
    suffix = ".cmd" if sys.platform == "win32" else ""
    yield {"everything": {"command": str(NPM / f"mcp-server-everything{suffix}")}}


@needs_npm
async def test_every_request_of_server_everything_is_answered(everything: dict[str, Any], tmp_path: Path) -> None:
    heard: list[ServerLog] = []

    async def elicit(question: Any) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {} if question.url else {"name": "Ada", "email": "ada@example.test"})

    async def sample(request: SamplingRequest) -> str:
        return f"{request.server} said {request.messages[-1].text}"

    async with DialClient(
        servers=everything, callbacks=Callbacks(elicit=elicit, sample=sample, roots=[tmp_path], on_log=heard.append)
    ) as dial:
        assert tmp_path.as_uri() in await called(dial, "get-roots-list")
        assert "everything said" in await called(dial, "trigger-sampling-request", prompt="Hi", maxTokens=10)
        form = await called(dial, "trigger-elicitation-request")
        assert '"name": "Ada"' in form
        assert '"integer": 42' in form
        page = await called(dial, "trigger-url-elicitation", url="https://example.test/", message="Look")
        assert "accept" in page
    assert any("Roots updated" in message.text for message in heard)
