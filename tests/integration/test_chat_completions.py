"""The OpenAI-compatible endpoint, tested with the OpenAI SDK."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.inner import (
    Delta,
    FilePart,
    HttpError,
    ImageFetcher,
    ImagePart,
    ModelProfile,
    ModelRequest,
    NetworkScope,
    Role,
    ScriptedProvider,
    TextPart,
)
from tests.integration.test_conversation_routes import ADD, Maths
from tests.support.http_service import MODEL, TOKEN, Gate, HttpService, read_events, serve
from tests.support.model_endpoint import Raw, model_endpoint, refuse

pytestmark = pytest.mark.anyio

HI: list[Any] = [{"role": "user", "content": "Hi"}]
PIXEL = base64.b64encode(b"pixel").decode()
MINE: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "mine",
            "description": "Mine.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]
IMAGE = {"type": "url", "url": "https://169.254.169.254/latest/meta-data"}
CALLS_MINE = {"text": "A moment.", "tool_calls": [{"name": "mine", "arguments": {"a": 1}}]}
CALLS_BOTH = {
    "tool_calls": [
        {"name": "mine", "arguments": {"a": 1}},
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        {"name": "mine", "arguments": {"a": 2}},
    ]
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def client(server: HttpService) -> AsyncIterator[openai.AsyncOpenAI]:
    http = httpx2.AsyncClient(trust_env=False, verify=False)
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=0, http_client=http) as made:
        yield made


@asynccontextmanager
async def asked(model: Any, servers: Any = None, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with serve(model, servers, **options) as server, client(server) as made:
        yield made


def whole(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_the_endpoint_runs_the_tools_of_its_servers() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 2, "reasoning_tokens": 1}
    replies = [ADD | {"usage": usage}, {"text": "It is 3.", "usage": usage}]
    async with asked(replies, {"maths": Maths().server}, allow=["*"]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI)
    choice = done.choices[0]
    assert (choice.message.content, choice.finish_reason, choice.message.tool_calls) == ("It is 3.", "stop", None)
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (20, 10, 30)
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 4
    assert done.model == MODEL


async def test_an_answer_streams() -> None:
    replies = [{"text": "Let me see.", **ADD}, {"text": "It is three.", "chunk_size": 3, "usage": {"output_tokens": 7}}]
    async with asked(replies, {"maths": Maths().server}, allow=["*"]) as ai:
        stream = await ai.chat.completions.create(
            model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert whole(chunks) == "Let me see.\n\nIt is three."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert (chunks[-1].choices, chunks[-1].usage and chunks[-1].usage.completion_tokens) == ([], 7)
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


async def test_an_answer_has_its_sources_as_annotations_and_its_images() -> None:
    cited = {"url": "https://a.test", "title": "A", "start_index": 6, "end_index": 11}
    message = {
        "role": "assistant",
        "content": "It is three.",
        "annotations": [{"type": "url_citation", "url_citation": cited}],
        "images": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}],
    }
    answer = {"wire": "chat", "body": {"choices": [{"message": message, "finish_reason": "stop"}]}}
    replies = [{"text": "Let me see.", **ADD}, answer]
    async with asked([*replies, *replies], {"maths": Maths().server}, allow=["*"]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI)
        stream = await ai.chat.completions.create(model=MODEL, messages=HI, stream=True)
        chunks = [chunk async for chunk in stream]
    [annotation] = done.choices[0].message.annotations or []
    assert annotation.to_dict() == message["annotations"][0]
    assert done.choices[0].message.model_extra == {"images": message["images"]}
    extras = [chunk.choices[0].delta.model_extra or {} for chunk in chunks]
    [beside] = [extra for extra in extras if "annotations" in extra]
    span = beside["annotations"][0]["url_citation"]
    assert whole(chunks)[span["start_index"] : span["end_index"]] == "three"
    assert beside["images"] == message["images"]


async def test_the_synchronous_sdk_works() -> None:
    def complete(url: str) -> tuple[ChatCompletion, list[ChatCompletionChunk], list[str]]:
        http = httpx2.Client(trust_env=False, verify=False)
        with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, http_client=http) as ai:
            completion = ai.chat.completions.create(model=MODEL, messages=HI)
            chunks = list(ai.chat.completions.create(model=MODEL, messages=HI, stream=True))
            return completion, chunks, [model.id for model in ai.models.list()]

    async with serve(["One.", "Two."]) as server:
        completion, chunks, models = await anyio.to_thread.run_sync(complete, server.url)
    assert (completion.choices[0].message.content, whole(chunks), models) == ("One.", "Two.", [MODEL, f"{MODEL}:plain"])


async def test_models_are_listed_and_an_unknown_model_is_not_found() -> None:
    async with asked([]) as ai:
        assert (await ai.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError) as unknown:
            await ai.models.retrieve("gpt")
        with pytest.raises(openai.NotFoundError) as refused:
            await ai.chat.completions.create(model="gpt", messages=HI)
    assert unknown.value.code == refused.value.code == "model_not_found"


async def test_without_the_token_the_sdk_raises_an_error() -> None:
    async with asked([]) as ai:
        with pytest.raises(openai.AuthenticationError):
            await ai.with_options(api_key="wrong").models.list()


async def test_all_kinds_of_messages_reach_the_model() -> None:
    model = ScriptedProvider(["Fine."])
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}}
    call = {"id": "c1", "type": "function", "function": {"name": "mine", "arguments": '{"a": 1}'}}
    messages: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "Look:"}, image, file]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "seen"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": "Well?"},
    ]
    async with asked(model) as ai:
        await ai.chat.completions.create(model=MODEL, messages=messages)
    received = model.requests[0].messages
    assert model.requests[0].instruction_text == "Be kind."
    assert received[0].content == (
        TextPart("Look:"),
        ImagePart(PIXEL, "image/png"),
        FilePart(PIXEL, "application/pdf", "a.pdf"),
    )
    (request,), result = received[1].tool_calls, received[2]
    assert (request.name, dict(request.arguments)) == ("mine", {"a": 1})
    assert (result.role, result.text, result.tool_call_id, result.name) == (Role.TOOL, "seen", "c1", "mine")
    assert [message.text for message in received[3:]] == ["No.", "Well?"]


async def test_a_client_tool_call_is_returned_and_its_result_continues_the_turn() -> None:
    model = ScriptedProvider([ADD, CALLS_MINE, "Both."])
    async with asked(model, {"maths": Maths().server}, allow=["*"]) as ai:
        messages = list(HI)
        done = await ai.chat.completions.create(model=MODEL, messages=messages, tools=MINE)
        message = done.choices[0].message
        assert done.choices[0].finish_reason == "tool_calls"
        assert message.content == "A moment."
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        assert call.type == "function"
        assert (call.function.name, json.loads(call.function.arguments)) == ("mine", {"a": 1})
        messages += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "42"}]
        last = await ai.chat.completions.create(model=MODEL, messages=messages, tools=MINE)
    assert last.choices[0].message.content == "Both."
    assert [tool.name for tool in model.requests[0].tools] == ["add", "wait", "mine"]
    messages = [(message.role.value, message.text) for message in model.requests[2].messages]
    assert messages == [("user", "Hi"), ("assistant", ""), ("tool", "3"), ("assistant", "A moment."), ("tool", "42")]


async def test_server_tool_calls_of_the_same_reply_run_before_a_client_tool_call_is_returned() -> None:
    model = ScriptedProvider([CALLS_BOTH, "All."])
    async with asked(model, {"maths": Maths().server}, allow=["*"]) as ai:
        messages = list(HI)
        stream = await ai.chat.completions.create(model=MODEL, messages=messages, tools=MINE, stream=True)
        chunks = [chunk async for chunk in stream]
        deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        calls = [{"id": d.id, "type": "function", "function": d.function.to_dict()} for d in deltas if d.function]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"r{at}"} for at, call in enumerate(calls)]
        await ai.chat.completions.create(model=MODEL, messages=messages, tools=MINE)
    assert [(d.index, d.function and d.function.name) for d in deltas] == [(0, "mine"), (1, "mine")]
    results = [message for message in model.requests[1].messages if message.role is Role.TOOL]
    assert [(message.tool_call_id, message.text) for message in results] == [
        ("call_1", "r0"),
        ("call_2", "3"),
        ("call_3", "r1"),
    ]


async def test_the_stream_helper_of_the_sdk_assembles_the_calls() -> None:
    async with asked([CALLS_MINE]) as ai, ai.chat.completions.stream(model=MODEL, messages=HI, tools=MINE) as stream:
        done = await stream.get_final_completion()
    message = done.choices[0].message
    assert (message.content, message.tool_calls and message.tool_calls[0].function.arguments) == (
        "A moment.",
        '{"a": 1}',
    )


async def test_a_turn_without_stored_state_is_continued_from_the_clients_messages() -> None:
    before, after = ScriptedProvider([CALLS_BOTH]), ScriptedProvider(["All."])
    maths = {"maths": Maths().server}
    async with asked(before, maths, allow=["*"]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI, tools=MINE)
    message = done.choices[0].message
    assert message.tool_calls is not None
    result = {"role": "tool", "tool_call_id": message.tool_calls[1].id, "content": "r1"}
    async with asked(after) as ai:
        messages: list[Any] = [*HI, message.to_dict(), result]
        await ai.chat.completions.create(model=MODEL, messages=messages, tools=MINE)
    messages = [(message.role.value, message.text) for message in after.requests[0].messages]
    assert messages == [
        ("user", "Hi"),
        ("assistant", ""),
        ("tool", "[no result was sent for this call]"),
        ("tool", "r1"),
    ]


async def test_a_client_tool_hides_a_server_tool_of_the_same_name() -> None:
    model = ScriptedProvider([ADD, "Done."])
    mine = [{"type": "function", "function": {"name": "add"}}]
    async with asked(model, {"maths": Maths().server}, allow=["*"]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI, tools=mine)  # type: ignore[arg-type]
    assert done.choices[0].finish_reason == "tool_calls"
    assert [(tool.name, tool.server) for tool in model.requests[0].tools] == [("wait", "maths"), ("add", "")]


async def test_tools_are_not_offered_with_tool_choice_none() -> None:
    model = ScriptedProvider(["Done."])
    async with asked(model) as ai:
        await ai.chat.completions.create(model=MODEL, messages=HI, tools=MINE, tool_choice="none")
    assert model.requests[0].tools == ()


async def test_arguments_that_are_not_json_are_returned_unchanged() -> None:
    async with asked([{"tool_calls": [{"name": "mine", "arguments": '{"a": '}]}]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI, tools=MINE)
    calls = done.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert calls[0].function.arguments == '{"a": '


async def test_calls_that_need_approval_are_denied_at_once() -> None:
    model = ScriptedProvider([ADD, "I may not."])
    async with asked(model, {"maths": Maths().server}) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI)
    assert done.choices[0].message.content == "I may not."
    assert "no user is available to approve the call" in model.requests[1].messages[-1].text


async def test_settings_apply_and_ignored_parameters_are_named() -> None:
    model = ScriptedProvider([{"text": "It is", "finish": "length"}, "Again."])
    sampling: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "reasoning_effort": "xhigh"}
    async with asked(model) as ai:
        raw = await ai.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=HI,
            max_completion_tokens=7,
            stop="x",
            parallel_tool_calls=False,
            user="ada",
            **sampling,
        )
        absent: Any = {"max_completion_tokens": None, "max_tokens": 10.0, "stop": ["a", "b"]}
        await ai.chat.completions.create(model=MODEL, messages=HI, extra_body=absent)
    first, second = (request.settings for request in model.requests)
    assert (first.max_tokens, first.temperature, first.top_p, first.seed) == (7, 0.5, 0.9, 7)
    assert (first.thinking, model.requests[0].stop) == ("max", ("x",))
    assert (second.max_tokens, model.requests[1].stop) == (10, ("a", "b"))
    assert (first.parallel_calls, second.parallel_calls) == (False, True)
    assert raw.headers["x-ignored-parameters"] == "user"
    assert raw.parse().choices[0].finish_reason == "length"


async def test_a_forced_choice_applies_to_the_first_reply_only() -> None:
    """Forced again after the server's tool ran, the model would call it again and again."""
    model = ScriptedProvider([ADD, "It is 3.", ADD, "It is 3.", CALLS_MINE])
    choices: list[Any] = ["required", {"type": "function", "function": {"name": "add"}}]
    mine: Any = {"type": "function", "function": {"name": "mine"}}
    async with asked(model, {"maths": Maths().server}, allow=["*"]) as ai:
        for choice in choices:
            done = await ai.chat.completions.create(model=MODEL, messages=HI, tool_choice=choice)
            assert done.choices[0].message.content == "It is 3."
        done = await ai.chat.completions.create(model=MODEL, messages=HI, tools=MINE, tool_choice=mine)
    assert done.choices[0].finish_reason == "tool_calls"
    assert [request.settings.tool_choice for request in model.requests] == ["required", None, "add", None, "mine"]


async def test_a_required_call_is_one_of_the_clients_tools_at_the_end() -> None:
    model = ScriptedProvider([ADD, "It is 3.", CALLS_MINE])
    async with asked(model, {"maths": Maths().server}, allow=["*"]) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI, tools=MINE, tool_choice="required")
    assert done.choices[0].finish_reason == "tool_calls"
    offered = [(request.settings.tool_choice, len(request.tools)) for request in model.requests]
    assert offered == [("required", 3), (None, 3), ("required", 1)]


TITLE = "### Task:\nGenerate a concise title summarizing the chat history.\n<chat_history>\nUSER: Hi\n</chat_history>"
RAG = "### Task:\nRespond to the user query using the provided context.\n<context></context>\nHi"


async def test_a_request_that_no_person_sent_has_neither_tools_nor_instructions() -> None:
    model = ScriptedProvider(["Fine."] * 7)
    title = "You are a title generator. You output ONLY a thread title."
    opencode: list[Any] = [{"role": "system", "content": title}, *HI]
    async with asked(model, {"maths": Maths().server}, allow=["*"], system="Be kind.") as ai:
        ask = ai.chat.completions.create
        await ask(model=f"{MODEL}:plain", messages=HI)
        await ask(model=MODEL, messages=HI, extra_headers={"X-Dial-Plain": "title_generation"})
        await ask(model=MODEL, messages=[{"role": "user", "content": TITLE}])
        await ask(model=MODEL, messages=opencode)
        await ask(model=MODEL, messages=HI, extra_headers={"X-Dial-Plain": ""})
        await ask(model=MODEL, messages=[{"role": "user", "content": RAG}])
        await ask(model=f"{MODEL}:plain", messages=HI, tools=MINE)
    assert [len(request.tools) for request in model.requests] == [0, 0, 0, 0, 2, 2, 1]
    texts = [request.instruction_text for request in model.requests]
    assert texts == ["", "", "", title, "Be kind.", "Be kind.", ""]


async def test_each_profile_is_a_model() -> None:
    async with asked(["Fine."], models={"other": ModelProfile("other", model="m")}) as ai:
        names = [model.id async for model in ai.models.list()]
        assert (await ai.models.retrieve("other:plain")).id == "other:plain"
    assert names == [MODEL, "other", f"{MODEL}:plain", "other:plain"]


async def test_a_stream_shows_the_reasoning_and_the_calls_beside_the_text() -> None:
    replies = [ADD | {"reasoning": "I add."}, "It is 3."]
    async with asked([*replies, *replies, *replies], {"maths": Maths().server}, allow=["*"]) as ai:
        stream = await ai.chat.completions.create(model=MODEL, messages=HI, stream=True)
        chunks = [chunk async for chunk in stream]
        quiet = {"X-Dial-Activity": "none"}
        stream = await ai.chat.completions.create(model=MODEL, messages=HI, stream=True, extra_headers=quiet)
        silent = [chunk async for chunk in stream]
        done = await ai.chat.completions.create(model=MODEL, messages=HI)
        with pytest.raises(openai.BadRequestError, match="X-Dial-Activity"):
            await ai.chat.completions.create(model=MODEL, messages=HI, extra_headers={"X-Dial-Activity": "loud"})
    beside = [(chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "") for chunk in chunks]
    assert "".join(beside) == 'I add.\n[maths/add {"a": 1, "b": 2}]\n'
    assert whole(chunks) == whole(silent) == "It is 3."
    assert not any(chunk.choices[0].delta.model_extra for chunk in silent)
    assert done.choices[0].message.model_extra == {"reasoning_content": "I add."}


async def test_a_tool_whose_name_endpoints_refuse_has_its_own_name_in_answers() -> None:
    name = "files.read" + "x" * 70
    tool: Any = {"type": "function", "function": {"name": name}}
    model = ScriptedProvider(["Fine."])
    async with asked(model) as ai:
        await ai.chat.completions.create(model=MODEL, messages=HI, tools=[tool])
    (offered,) = model.requests[0].tools
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", offered.name)
    model = ScriptedProvider([{"tool_calls": [{"name": offered.name, "arguments": {}}]}, "Done."])
    async with asked(model) as ai:
        done = await ai.chat.completions.create(model=MODEL, messages=HI, tools=[tool])
        message = done.choices[0].message.to_dict()
        [call] = done.choices[0].message.tool_calls or []
        assert call.to_dict()["function"] == {"name": name, "arguments": "{}"}
        messages: list[Any] = [*HI, message, {"role": "tool", "tool_call_id": call.id, "content": "42"}]
        await ai.chat.completions.create(model=MODEL, messages=messages, tools=[tool])
    assert model.requests[1].messages[1].tool_calls[0].name == offered.name


async def test_an_image_is_fetched_from_an_allowed_network_only() -> None:
    image: dict[str, Any] = {}
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": image}]}]
    fetcher = ImageFetcher(NetworkScope.LOOPBACK)
    png = Raw((b"pixel",), headers={"content-type": "image/png"})
    with model_endpoint([refuse(500)], described=png) as endpoint:
        image["url"] = endpoint.url
        with pytest.raises(HttpError, match="over https only"):
            await ImageFetcher().embed(messages)
        await fetcher.embed(messages)
    assert image["url"] == f"data:image/png;base64,{PIXEL}"
    away = Raw(status=302, headers={"location": "http://169.254.169.254/"})
    with model_endpoint([refuse(500)], described=away) as endpoint:
        image["url"] = endpoint.url
        with pytest.raises(HttpError, match="private network"):
            await fetcher.embed(messages)
    with model_endpoint([refuse(500)]) as endpoint:
        image["url"] = endpoint.url
        with pytest.raises(HttpError, match="status 404"):
            await fetcher.embed(messages)


WRONG: dict[str, dict[str, Any]] = {
    "several answers": {"n": 2},
    "a form of the answer": {"response_format": {"type": "xml"}},
    "a form without a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
    "a schema that is none": {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
    "sound": {"modalities": ["text", "audio"]},
    "a call of a tool that is not there": {"tool_choice": {"type": "function", "function": {"name": "a"}}},
    "functions": {"functions": [{"name": "a"}]},
    "no messages": {"messages": []},
    "a message that is none": {"messages": ["Hi"]},
    "a result of a function": {"messages": [{"role": "function", "content": "Hi"}]},
    "a remote image": {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}]}]},
    "an image of the private network": {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://127.0.0.1:1/x.png"}}]}]},
    "an image of the cloud": {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://169.254.169.254/latest"}}]}]},
    "audio": {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
    "a custom tool": {"tools": [{"type": "custom", "custom": {"name": "a"}}]},
    "a temperature": {"temperature": 3},
    "an effort": {"reasoning_effort": "extreme"},
    "a text to stop at": {"stop": [1]},
    "an image that is no base64": {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,???"}}]}]},
    "a part there is not": {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
    "a result of nothing": {"messages": [{"role": "tool", "content": "42"}]},
    "a call without arguments": {"messages": [{"role": "assistant", "tool_calls": [
        {"id": "1", "function": {"name": "a"}}]}]},
    "no tokens": {"max_tokens": 0},
    "too many tools": {"tools": [{"type": "function", "function": {"name": f"t{at}"}} for at in range(1025)]},
    "a tool that is none": {"tools": [{"type": "web_search"}]},
    "a tool's name": {"tools": [{"type": "function", "function": {"name": ""}}]},
    "a tool twice": {"tools": [{"type": "function", "function": {"name": "a"}}] * 2},
    "a tool's parameters": {"tools": [
        {"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_unsupported_requests_are_refused_with_the_parameter(name: str) -> None:
    async with serve([]) as server:
        body = {"model": MODEL, "messages": HI} | WRONG[name]
        answer = await server.json("POST", "/v1/chat/completions", 400, json=body)
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["param"]


FAILURES: list[tuple[dict[str, Any], type[openai.APIStatusError], int]] = [
    ({"message": "slow down", "status": 429, "retry_after": 2.5}, openai.RateLimitError, 429),
    ({"message": "too long", "status": 400, "code": "context_length_exceeded"}, openai.BadRequestError, 400),
    ({"message": "bad key", "status": 401}, openai.InternalServerError, 502),
    ({"message": "down", "status": 503}, openai.InternalServerError, 502),
    ({"message": "nobody there", "code": "timeout"}, openai.InternalServerError, 504),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "kind", "status"), FAILURES, ids=lambda value: str(value)[:40])
async def test_a_model_failure_is_an_error_of_the_sdk(
    error: dict[str, Any], kind: type[openai.APIStatusError], status: int, stream: bool
) -> None:
    async with asked([{"error": error}]) as ai:
        with pytest.raises(kind) as raised:
            await ai.chat.completions.create(model=MODEL, messages=HI, stream=stream)
    assert raised.value.status_code == status
    assert error["message"] in str(raised.value)


async def test_a_model_failure_in_the_stream_is_an_error_event() -> None:
    async with asked([{"text": "I be", "error": {"message": "broke off", "status": 500}}]) as ai:
        stream = await ai.chat.completions.create(model=MODEL, messages=HI, stream=True)
        chunks: list[ChatCompletionChunk] = []
        with pytest.raises(openai.APIError, match="broke off"):
            chunks.extend([chunk async for chunk in stream])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnected_client_cancels_its_turn(stream: bool) -> None:
    maths = Maths()
    waits = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
    async with serve([waits], {"maths": maths.server}, allow=["*"]) as server:

        async def ask(leave: anyio.CancelScope) -> None:
            with leave:
                async with server.http.stream(
                    "POST", "/v1/chat/completions", json={"messages": HI, "stream": stream}
                ) as answer:
                    await answer.aread()

        async with anyio.create_task_group() as group:
            leave = anyio.CancelScope()
            group.start_soon(ask, leave)
            await maths.gate.begun.wait()
            leave.cancel()
        await maths.gate.cancelled.wait()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": IMAGE}]}]}),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE["url"]}]}]}),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "image", "source": IMAGE}]}], "max_tokens": 9},
        ),
    ],
)
async def test_no_api_fetches_an_image_from_a_private_network(path: str, body: dict[str, Any]) -> None:
    async with serve([]) as server:
        refused = await server.json("POST", f"/v1/{path}", 400, json={"model": MODEL, **body})
    assert "leads into a private network" in refused["error"]["message"]


async def test_an_error_after_the_head_ends_the_stream_with_the_error() -> None:
    gate = Gate()

    class Slow(ScriptedProvider):
        async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            await gate.passed()
            async for delta in super().generate(request):
                yield delta

    async with serve(Slow([{"error": {"message": "no more tokens", "status": 429}}])) as server:
        body = {"model": MODEL, "messages": HI, "stream": True}
        async with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            gate.open.set()  # the head has come: the model has not answered for long
            events = [event.data async for event in read_events(answer)]
    assert answer.status_code == 200
    assert "no more tokens" in events[0]["error"]["message"]
    assert events[1:] == ["[DONE]"]
