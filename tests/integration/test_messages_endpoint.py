"""The endpoint for Anthropic's Messages API, tested with the Anthropic SDK."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import BaseModel

from tests.inner import REQUEST_ID, FilePart, ImagePart, ScriptedProvider, TextPart
from tests.integration.test_conversation_routes import ADD, Maths
from tests.integration.test_responses_endpoint import BOTH, PARAMETERS, SUM, histories
from tests.support.http_service import MODEL, TOKEN, HttpService, read_events, serve

pytestmark = pytest.mark.anyio

HI: list[Any] = [{"role": "user", "content": "Hi"}]
PIXEL = base64.b64encode(b"pixel").decode()
MINE: Any = {"name": "mine", "description": "Mine.", "input_schema": PARAMETERS}
SHORT: Any = {"model": MODEL, "max_tokens": 100}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def asked(model: Any, **options: Any) -> AsyncIterator[tuple[anthropic.AsyncAnthropic, HttpService]]:
    http = httpx2.AsyncClient(trust_env=False, verify=False)
    async with (
        serve(model, {"maths": Maths().server}, allow=["*"], **options) as server,
        anthropic.AsyncAnthropic(base_url=server.url, api_key=TOKEN, max_retries=0, http_client=http) as client,
    ):
        yield client, server


async def test_a_message_streams_and_shows_the_work_only_to_clients_that_know_its_blocks() -> None:
    async with asked(SUM * 4) as (ai, _):
        plain = await ai.messages.create(**SHORT, messages=HI)
        async with ai.messages.stream(**SHORT, messages=HI) as stream:
            texts = [text async for text in stream.text_stream]
            streamed = await stream.get_final_message()
        thinking = await ai.messages.create(**SHORT, messages=HI, thinking={"type": "adaptive"})
        async with ai.beta.messages.stream(**SHORT, messages=HI, betas=["mcp-client-2025-11-20"]) as shown_stream:
            shown = await shown_stream.get_final_message()
    assert [block.type for block in plain.content] == [block.type for block in streamed.content] == ["text", "text"]
    assert "".join(texts) == "Let me see.It is three."
    assert streamed.stop_reason == plain.stop_reason == "end_turn"
    usage = streamed.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (16, 4, 10)
    assert [block.type for block in thinking.content] == ["thinking", "text", "thinking", "text"]
    first, second = thinking.content[0], thinking.content[2]
    assert first.type == second.type == "thinking"
    assert (first.thinking, first.signature, "maths/add" in second.thinking) == ("Hm.", "", True)
    assert [block.type for block in shown.content] == ["text", "mcp_tool_use", "mcp_tool_result", "text"]
    call = shown.content[1]
    assert call.type == "mcp_tool_use"
    assert (call.server_name, call.name, call.input) == ("maths", "add", {"a": 1, "b": 2})


async def test_calls_of_both_sides_in_one_reply_are_joined_when_the_client_returns_its_results() -> None:
    model = ScriptedProvider([BOTH, "All.", *SUM, "Yes."])
    async with asked(model) as (ai, _):
        async with ai.messages.stream(**SHORT, messages=HI, tools=[MINE]) as stream:
            first = await stream.get_final_message()
        calls = [block for block in first.content if block.type == "tool_use"]
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": call.id, "content": f"r{at}"} for at, call in enumerate(calls)
        ]
        results.insert(0, {"type": "text", "text": "Here."})
        echo: Any = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
        last = await ai.messages.create(
            **SHORT, messages=[*HI, echo, {"role": "user", "content": results}], tools=[MINE]
        )
        joined = histories(model)

        shown = await ai.beta.messages.create(**SHORT, messages=HI, betas=["mcp-client-2025-11-20"])
        echo = {"role": "assistant", "content": [block.to_dict() for block in shown.content]}
        await ai.messages.create(**SHORT, messages=[*HI, echo, {"role": "user", "content": "So?"}])
    assert first.stop_reason == "tool_use"
    assert [call.input for call in calls] == [{"a": 1}, {"a": 2}]
    assert last.content[0].type == "text"
    assert joined == [
        *[("user", "Hi"), ("assistant", "A moment."), ("tool", "r0"), ("tool", "3"), ("tool", "r1"), ("user", "Here.")]
    ]
    assert histories(model) == [
        *[("user", "Hi"), ("assistant", "Let me see."), ("tool", "3"), ("assistant", "It is three."), ("user", "So?")]
    ]


async def test_parameters_and_blocks_reach_the_model() -> None:
    model = ScriptedProvider(["Fine.", "No.", "Yes.", "A title"])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    file = {
        "type": "document",
        "title": "a.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL},
    }
    note = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a note"}}
    content: Any = [{"type": "text", "text": "Look:"}, image, file, note]
    billing: Any = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1;"}
    earlier: Any = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}]}
    searching: Any = {"type": "web_search_20250305", "name": "web_search"}
    async with asked(model) as (ai, _):
        raw = await ai.messages.with_raw_response.create(
            **SHORT,
            system=[billing, {"type": "text", "text": "Be kind."}],
            messages=[*HI, earlier, {"role": "user", "content": content}],
            tools=[MINE, searching],
            tool_choice={"type": "tool", "name": "mine", "disable_parallel_tool_use": True},
            output_config={"effort": "low"},
            stop_sequences=["END"],
        )
        await ai.messages.create(**SHORT, messages=HI, tools=[MINE], tool_choice={"type": "none"})
        named = await ai.messages.create(model="claude-sonnet-5-5:plain", max_tokens=9, messages=HI)
        title = {"User-Agent": "claude-cli/2.1.197 (external, cli)"}
        await ai.messages.create(**SHORT, messages=HI, tools=[], extra_headers=title)
        counted = await ai.messages.count_tokens(model="claude-x", messages=HI)
        more = await ai.messages.count_tokens(model=MODEL, messages=HI, tools=[MINE])
    request = model.requests[0]
    assert request.instruction_text.startswith("Be kind.")
    assert request.messages[-1].content == (
        TextPart("Look:"),
        ImagePart(PIXEL, "image/png"),
        FilePart(PIXEL, "application/pdf", "a.pdf"),
        TextPart("a note"),
    )
    assert (request.settings.max_tokens, request.settings.thinking) == (100, "low")
    assert (request.settings.tool_choice, request.stop) == ("mine", ("END",))
    assert [request.settings.parallel_calls for request in model.requests[:2]] == [False, True]
    assert raw.headers["x-ignored-parameters"] == "tools[1] (web_search_20250305)"
    assert [len(later.tools) for later in model.requests[1:]] == [0, 0, 0]
    assert named.model == f"{MODEL}:plain"
    assert 0 < counted.input_tokens < more.input_tokens


class Sum(BaseModel):
    """A typed answer."""

    total: int


async def test_a_typed_answer_is_parsed() -> None:
    async with asked([ADD, '{"total": 3}']) as (ai, _):
        message = await ai.messages.parse(**SHORT, messages=HI, output_format=Sum)
    assert message.parsed_output == Sum(total=3)


REFUSED: dict[str, dict[str, Any]] = {
    "no messages": {"messages": []},
    "a role there is not": {"messages": [{"role": "tool", "content": "Hi"}]},
    "content that is none": {"messages": [{"role": "user", "content": 1}]},
    "a result of nothing": {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
    "a tool's name": {"messages": HI, "tools": [{"name": "", "input_schema": {}}]},
    "a choice there is not": {"messages": HI, "tool_choice": {"type": "some"}},
    "no tokens": {"messages": HI, "max_tokens": 0},
}


async def test_an_error_and_the_event_of_an_error_have_the_id_of_the_request() -> None:
    late = {"text": "I be", "error": {"message": "broke off", "status": 500}}
    async with asked(["Hello.", late]) as (ai, server):
        message = await ai.messages.create(**SHORT, messages=HI)
        with pytest.raises(anthropic.NotFoundError) as missing:
            await ai.messages.create(model="gpt", max_tokens=9, messages=HI)
        async with server.http.stream("POST", "/v1/messages", json={"messages": HI, "stream": True}) as response:
            events = [event async for event in read_events(response)]
    assert isinstance(missing.value.body, dict)
    assert message._request_id
    assert missing.value.body["request_id"] == missing.value.request_id == missing.value.response.headers[REQUEST_ID]
    assert events[-1].data["request_id"] == response.headers["request-id"] == response.headers[REQUEST_ID]


async def test_failures_are_errors_of_the_sdk() -> None:
    late = {"text": "I be", "error": {"message": "broke off", "status": 500}}
    early = {"error": {"message": "slow down", "status": 429}}
    async with asked([early, early, late]) as (ai, server):
        for stream in (False, True):
            with pytest.raises(anthropic.RateLimitError) as limited:
                await ai.messages.create(**SHORT, messages=HI, stream=stream)
        with pytest.raises(anthropic.NotFoundError):
            await ai.messages.create(model="gpt", max_tokens=9, messages=HI)
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await ai.with_options(api_key="wrong").messages.create(**SHORT, messages=HI)
        body = {"messages": HI, "stream": True}
        async with server.http.stream("POST", "/v1/messages", json=body) as response:
            events = [event async for event in read_events(response)]
        for name, wrong in REFUSED.items():
            answer = await server.json("POST", "/v1/messages", 400, json=wrong)
            assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error"), name
        assert (await server.json("GET", "/v1/messages", 405))["type"] == "error"
        # Anthropic's SDKs for other languages send the token in a header of its own.
        key = {"authorization": "", "x-api-key": TOKEN, "anthropic-version": "2023-06-01"}
        models = await server.json("GET", "/v1/models", headers=key)
        model = await server.json("GET", f"/v1/models/{MODEL}", headers=key)
    assert (limited.value.type, refused.value.type) == ("rate_limit_error", "authentication_error")
    assert events[-1].data["error"] == {"type": "api_error", "message": "broke off"}
    assert (models["data"][0], models["has_more"]) == (model, False)
    assert (model["type"], model["id"], model["display_name"]) == ("model", MODEL, MODEL)
