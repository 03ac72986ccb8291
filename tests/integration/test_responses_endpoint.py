"""The endpoint for OpenAI's Responses API, tested with the OpenAI SDK."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import openai
import pytest
from pydantic import BaseModel

from tests.inner import ImagePart, ResponseStore, ScriptedProvider, TextPart
from tests.integration.test_conversation_routes import ADD, Maths
from tests.support.http_service import MODEL, TOKEN, HttpService, read_events, serve

pytestmark = pytest.mark.anyio

PIXEL = base64.b64encode(b"pixel").decode()
USAGE = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 2, "reasoning_tokens": 1}
SUM = [
    {"reasoning": "Hm.", "text": "Let me see.", **ADD, "usage": USAGE},
    {"text": "It is three.", "chunk_size": 4, "usage": USAGE},
]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
MINE: Any = {"type": "function", "name": "mine", "description": "Mine.", "parameters": PARAMETERS}
BOTH = {
    "text": "A moment.",
    "tool_calls": [
        {"name": "mine", "arguments": {"a": 1}},
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        {"name": "mine", "arguments": {"a": 2}},
    ],
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def asked(model: Any, **options: Any) -> AsyncIterator[tuple[openai.AsyncOpenAI, HttpService]]:
    http = httpx2.AsyncClient(trust_env=False, verify=False)
    async with (
        serve(model, {"maths": Maths().server}, allow=["*"], **options) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=0, http_client=http) as client,
    ):
        yield client, server


def histories(model: ScriptedProvider) -> list[tuple[str, str]]:
    """Return the messages of the last request to the model."""
    return [(message.role.value, message.text) for message in model.requests[-1].messages]


async def test_a_response_has_an_item_for_each_step_streamed_or_not() -> None:
    kinds = ["reasoning", "message", "mcp_call", "message"]
    async with asked([*SUM, *SUM, *SUM]) as (ai, _):
        whole = await ai.responses.create(model=MODEL, input="Hi")
        async with ai.responses.stream(model=MODEL, input="Hi") as stream:
            events = [event.type async for event in stream]
            streamed = await stream.get_final_response()
        hidden = await ai.responses.create(model=MODEL, input="Hi", extra_headers={"X-Dial-Activity": "none"})
    assert [item.type for item in whole.output] == [item.type for item in streamed.output] == kinds
    assert [item.type for item in hidden.output] == ["message", "message"]
    call = streamed.output[2]
    assert call.type == "mcp_call"
    assert (call.server_label, call.name, json.loads(call.arguments), call.output) == (
        "maths",
        "add",
        {"a": 1, "b": 2},
        "3",
    )
    assert streamed.output_text == whole.output_text == "Let me see.It is three."
    assert (events[0], events[1], events[-1]) == ("response.created", "response.in_progress", "response.completed")
    assert events.count("response.output_item.added") == events.count("response.output_item.done") == 4
    assert streamed.usage is not None
    assert (streamed.usage.input_tokens, streamed.usage.input_tokens_details.cached_tokens) == (20, 4)
    assert (streamed.usage.total_tokens, streamed.usage.output_tokens_details.reasoning_tokens) == (30, 2)


async def test_calls_of_both_sides_in_one_reply_are_joined_when_the_client_returns_its_results() -> None:
    model = ScriptedProvider([BOTH, "All.", BOTH, "All."])
    async with asked(model) as (ai, _):
        async with ai.responses.stream(model=MODEL, input="Hi", tools=[MINE], store=False) as stream:
            first = await stream.get_final_response()
        calls = [item for item in first.output if item.type == "function_call"]
        results: list[Any] = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"r{at}"}
            for at, call in enumerate(calls)
        ]
        items: list[Any] = [{"role": "user", "content": "Hi"}, *(item.to_dict() for item in first.output), *results]
        last = await ai.responses.create(model=MODEL, input=items, tools=[MINE], store=False)
        echoed = histories(model)
        with pytest.raises(openai.BadRequestError) as unknown:
            await ai.responses.create(model=MODEL, input="Go on.", previous_response_id=first.id)

        kept = await ai.responses.create(model=MODEL, input="Hi", tools=[MINE])
        for result, call in zip(results, [item for item in kept.output if item.type == "function_call"], strict=True):
            result["call_id"] = call.call_id
        await ai.responses.create(model=MODEL, input=results, previous_response_id=kept.id, tools=[MINE])
    assert [json.loads(call.arguments) for call in calls] == [{"a": 1}, {"a": 2}]
    assert last.output_text == "All."
    joined = [("user", "Hi"), ("assistant", "A moment."), ("tool", "r0"), ("tool", "3"), ("tool", "r1")]
    assert echoed == histories(model) == joined
    assert unknown.value.code == "previous_response_not_found"


async def test_a_shown_call_is_part_of_the_next_request_and_items_may_be_referred_to() -> None:
    model = ScriptedProvider([*SUM, "Yes.", "Yes."])
    expected = [
        ("user", "Hi"),
        ("assistant", "Let me see."),
        ("tool", "3"),
        ("assistant", "It is three."),
        ("user", "So?"),
    ]
    async with asked(model) as (ai, _):
        first = await ai.responses.create(model=MODEL, input="Hi")
        question: list[Any] = [{"role": "user", "content": "Hi"}]
        echo: list[Any] = [item.to_dict() for item in first.output]
        more: list[Any] = [{"role": "user", "content": "So?"}]
        await ai.responses.create(model=MODEL, input=[*question, *echo, *more])
        sent = histories(model)
        references: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
        await ai.responses.create(model=MODEL, input=[*question, *references, *more])
        with pytest.raises(openai.NotFoundError, match="not here"):
            await ai.responses.create(model=MODEL, input=[{"type": "item_reference", "id": f"msg_{'0' * 32}_0"}])
    assert sent == histories(model) == expected
    call, result = model.requests[-1].messages[1:3]
    assert [(request.name, dict(request.arguments)) for request in call.tool_calls] == [("add", {"a": 1, "b": 2})]
    assert result.tool_call_id == call.tool_calls[0].id


async def test_responses_are_kept_within_a_limit_and_for_their_owner() -> None:
    own = ResponseStore()
    await own.add("ada", {"id": f"resp_{'3' * 32}", "output": []}, [{"role": "user", "content": "Hi"}])
    assert await own.list_items("ada", f"resp_{'3' * 32}") == [{"role": "user", "content": "Hi"}]
    with pytest.raises(Exception, match="not here"):
        await own.list_items("bob", f"resp_{'3' * 32}")
    store = ResponseStore(max_kept=100)
    first, second = f"resp_{'1' * 32}", f"resp_{'2' * 32}"
    await store.add("ada", {"id": first, "output": []}, [{"role": "user", "content": "Hi"}])
    await store.add(
        "ada", {"id": second, "previous_response_id": first, "output": []}, [{"role": "user", "content": "Go"}]
    )
    with pytest.raises(Exception, match="not any more"):
        await store.list_items("ada", second)


async def test_parameters_reach_the_model() -> None:
    model = ScriptedProvider(["Fine.", "No.", {"tool_calls": [{"name": "ns_mine_dc921d22", "arguments": {"a": 1}}]}])
    custom: Any = {
        "type": "custom",
        "name": "patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "x: y"},
    }
    tools: Any = [
        MINE,
        custom,
        {"type": "namespace", "name": "ns", "description": "", "tools": [MINE]},
        {"type": "web_search"},
    ]
    image: Any = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    async with asked(model) as (ai, _):
        raw = await ai.responses.with_raw_response.create(
            model=f"{MODEL}:plain",
            instructions="Be kind.",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "Look:"}, image]}],
            tools=tools,
            tool_choice={"type": "function", "name": "mine"},
            max_output_tokens=7,
            temperature=0.5,
            reasoning={"effort": "low"},
            include=["reasoning.encrypted_content"],
        )
        allowed: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "patch"}]}
        await ai.responses.create(model=MODEL, input="Hi", tools=tools, tool_choice=allowed)
        called = await ai.responses.create(model=MODEL, input="Hi", tools=tools)
    request = model.requests[0]
    assert request.instruction_text == "Be kind."
    assert request.messages[0].content == (TextPart("Look:"), ImagePart(PIXEL, "image/png"))
    assert (request.settings.max_tokens, request.settings.temperature, request.settings.thinking) == (7, 0.5, "low")
    assert request.settings.tool_choice == "mine"
    assert raw.headers["x-ignored-parameters"] == "tools[3] (web_search)"
    assert [tool.name for tool in model.requests[1].tools] == ["patch"]
    [call] = called.output
    assert call.type == "function_call"
    assert (call.name, call.namespace) == ("mine", "ns")


async def test_a_custom_tool_is_called_with_text() -> None:
    model = ScriptedProvider([{"tool_calls": [{"name": "patch", "arguments": {"input": "*** Begin"}}]}, "Done."])
    async with asked(model) as (ai, _):
        custom: Any = {"type": "custom", "name": "patch"}
        async with ai.responses.stream(model=MODEL, input="Hi", tools=[custom]) as stream:
            first = await stream.get_final_response()
        [call] = first.output
        assert call.type == "custom_tool_call"
        output: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "ok"}
        await ai.responses.create(model=MODEL, previous_response_id=first.id, input=[output], tools=[custom])
    assert call.input == "*** Begin"
    assert model.requests[1].messages[-1].text == "ok"


class Sum(BaseModel):
    """A typed answer."""

    total: int


async def test_a_typed_answer_is_parsed() -> None:
    typed = {"text": '{"total": 3}'}
    async with asked([SUM[0], typed, typed]) as (ai, _):
        parsed = await ai.responses.parse(model=MODEL, input="Hi", text_format=Sum)
        async with ai.responses.stream(model=MODEL, input="Hi", text_format=Sum) as stream:
            streamed = await stream.get_final_response()
    assert parsed.output_parsed == streamed.output_parsed == Sum(total=3)


REFUSED: dict[str, dict[str, Any]] = {
    "no items": {"input": []},
    "an item that is none": {"input": ["Hi"]},
    "a role there is not": {"input": [{"role": "tool", "content": "Hi"}]},
    "a result of nothing": {"input": [{"type": "function_call_output", "output": "x"}]},
    "a conversation kept elsewhere": {"input": "Hi", "conversation": "conv_1"},
    "a server that is the client's": {"input": "Hi", "tools": [{"type": "mcp", "server_label": "x"}]},
    "a tool that has to be called and is not there": {"input": "Hi", "tool_choice": {"type": "function", "name": "x"}},
    "a form of the answer": {"input": "Hi", "text": {"format": {"type": "xml"}}},
    "no tokens": {"input": "Hi", "max_output_tokens": 0},
}


async def test_failures_are_errors_of_the_sdk() -> None:
    late = {"text": "I be", "error": {"message": "broke off", "status": 500}}
    early = {"error": {"message": "slow down", "status": 429}}
    short = {"text": "It is", "finish": "length"}
    async with asked([early, early, late, short]) as (ai, server):
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError):
                await ai.responses.create(model=MODEL, input="Hi", stream=stream)
        async with server.http.stream("POST", "/v1/responses", json={"input": "Hi", "stream": True}) as response:
            events = [event async for event in read_events(response)]
        cut = await ai.responses.create(model=MODEL, input="Hi")
        for name, body in REFUSED.items():
            answer = await server.json("POST", "/v1/responses", 400, json=body)
            assert answer["error"]["param"], name
        await server.json("GET", "/v1/responses", 405)
    assert [event.name for event in events[-2:]] == ["error", "response.failed"]
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1].data["response"]["error"] == {"code": "server_error", "message": "broke off"}
    assert (cut.status, cut.incomplete_details and cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_a_disconnected_client_cancels_its_turn() -> None:
    maths = Maths()
    waits = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([waits], {"maths": maths.server}, allow=["*"]) as server, anyio.create_task_group() as group:
        leave = anyio.CancelScope()

        async def ask() -> None:
            body = {"input": "Hi", "stream": True}
            with leave:
                async with server.http.stream("POST", "/v1/responses", json=body) as answer:
                    await answer.aread()

        group.start_soon(ask)
        await maths.gate.begun.wait()
        leave.cancel()
        await maths.gate.cancelled.wait()
