"""Chat completions apart from the text: reasoning, extra fields of calls, usage, and the fields of requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import (
    CHAT,
    OLLAMA,
    ChatProvider,
    Endpoint,
    EndpointProfile,
    Message,
    ModelSettings,
    ProviderError,
    ToolCallResult,
    ToolChoice,
    ToolSpec,
    Usage,
)
from tests.integration.test_chat_stream import A1, A2, CALL, ask, calls, delta, piece, whole
from tests.support.model_endpoint import Call, Raw, Say, events, hear, model_endpoint, one_json

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_separate_from_the_text_and_is_sent_back_with_the_calls(field: str, stream: bool) -> None:
    message = {field: "Hm. ", "content": "I look.", "tool_calls": [CALL]}
    first = events(
        delta({field: "Hm"}), delta({field: ". "}), delta({"content": "I look.", "tool_calls": [CALL]}, "stop")
    )
    with model_endpoint([first if stream else whole(message), Say("Done")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        heard = await hear(provider, stream=stream)
        result = Message.tool(heard.calls[0], ToolCallResult("a", success=True, content="2"))
        await hear(provider, Message.user("Hello?"), heard.message(provider), result)
        await provider.aclose()

    assert heard.reasoning == "Hm. "
    assert endpoint.requests[1].json["messages"][1][field] == "Hm. "


async def test_the_profile_decides_whether_reasoning_is_sent_back() -> None:
    says = Say("Fine", reasoning="Hm")
    for profile, expected in [
        (EndpointProfile(), None),
        (EndpointProfile(echo_reasoning="always"), "Hm"),
        (EndpointProfile(echo_reasoning="none"), None),
    ]:
        with model_endpoint([says]) as endpoint:
            provider = ChatProvider("m", Endpoint(endpoint.url), profile)
            heard = await hear(provider)
            await hear(provider, Message.user("Hello?"), heard.message(provider), Message.user("And?"))
            await provider.aclose()
            assert endpoint.requests[1].json["messages"][1].get("reasoning_content") == expected


async def test_extra_fields_of_a_call_are_sent_back_only_to_the_endpoint_that_added_them() -> None:
    signed = {"extra_content": {"google": {"thought_signature": "abc"}}}
    with model_endpoint([calls(piece("add", A1 + A2, index=0, **signed)), Say("Done")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        second = ChatProvider("n", Endpoint(endpoint.url), CHAT)
        heard = await hear(provider)
        for asked in (provider, second):
            await hear(asked, Message.user("Hello?"), heard.message(provider))
            await asked.aclose()

    back, elsewhere = (request.json["messages"][1]["tool_calls"][0] for request in endpoint.requests[1:])
    assert back["extra_content"] == signed["extra_content"]
    assert "extra_content" not in elsewhere
    assert back["id"] == elsewhere["id"] == heard.calls[0].id


@pytest.mark.parametrize("stream", [True, False])
async def test_unknown_fields_of_a_call_are_not_sent_back(stream: bool) -> None:
    own = CALL | {"custom": None, "item_id": "x", "provider_specific_fields": {"thought_signature": "abc"}}
    first = (
        events(delta({"tool_calls": [own | {"index": 0}]}, "tool_calls")) if stream else whole({"tool_calls": [own]})
    )
    with model_endpoint([first, Say("Done")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        heard = await hear(provider, stream=stream)
        await hear(provider, Message.user("Hello?"), heard.message(provider))
        await provider.aclose()

    (sent,) = endpoint.requests[1].json["messages"][1]["tool_calls"]
    assert set(sent) == {"id", "type", "function", "provider_specific_fields"}


async def test_a_call_after_reasoning_that_the_endpoint_cannot_parse_is_requested_again() -> None:
    unreadable = {"error": {"message": "Failed to call a function", "code": "tool_use_failed"}}
    failed = events(delta({"role": "assistant", "reasoning": "Hm. "}), unreadable, done=False)
    again = events(delta({"reasoning": "Well."}), delta({"tool_calls": [CALL]}, "tool_calls"))
    with model_endpoint([failed, again, Say("Done")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        heard = await hear(provider)
        await hear(provider, Message.user("Hello?"), heard.message(provider))
        await provider.aclose()

    assert heard.asked == [("add", {"x": 1})]
    assert heard.completion.notes == ("the endpoint could not parse the model's tool call: the request is sent again",)
    assert endpoint.requests[2].json["messages"][1]["reasoning"] == "Well.", "not that of the reply that failed"


async def test_fragments_of_reasoning_details_are_joined() -> None:
    pieces = [
        {"type": "reasoning.text", "text": "I ", "index": 0, "signature": None},
        {"type": "reasoning.text", "text": "think", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "e", "index": 1},
    ]
    chunks = [delta({"reasoning_details": [detail]}) for detail in pieces]

    heard = await ask(events(*chunks, delta({"tool_calls": [CALL]}, "stop")))

    assert heard.completion.echo["reasoning"]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "I think", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "e", "index": 1},
    ]


async def test_reasoning_inside_a_list_of_parts_is_not_text() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}

    heard = await ask(events(delta({"content": [thinking, {"type": "text", "text": "Hi"}]}, "stop")))

    assert (heard.reasoning, heard.text) == ("Hm", "Hi")


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
COUNTED = Usage(10, 5, 4, 2)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            events(delta({"content": "x"}, "stop"), {"choices": [], "usage": USAGE}), COUNTED, id="at the end"
        ),
        pytest.param(events(delta({"content": "x"}, "stop") | {"usage": USAGE}), COUNTED, id="beside the last word"),
        pytest.param(
            events(delta({"content": "x"}) | {"usage": USAGE}, delta({}, "stop") | {"usage": None}),
            COUNTED,
            id="in the middle, then null",
        ),
        pytest.param(
            events(delta({"content": "x"}) | {"usage": {"prompt_tokens": 1}}, delta({}, "stop") | {"usage": USAGE}),
            COUNTED,
            id="the last counts",
        ),
        pytest.param(events(delta({}, "stop") | {"x_groq": {"usage": USAGE}}), COUNTED, id="as Groq does"),
        pytest.param(events(delta({}, "stop", usage=USAGE)), COUNTED, id="in the choice"),
        pytest.param(
            events(delta({}, "stop") | {"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 3}}),
            Usage(9, 0, 3),
            id="as DeepSeek does",
        ),
        pytest.param(
            events(delta({}, "stop") | {"usage": {"prompt_tokens": None, "completion_tokens": "5"}}),
            Usage(),
            id="no numbers",
        ),
        pytest.param(events(delta({}, "stop")), Usage(), id="nowhere"),
    ],
)
async def test_usage_is_read_from_every_place_that_endpoints_use(answer: Raw, expected: Usage) -> None:
    assert (await ask(answer)).completion.usage == expected


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("value", "status", "code"),
    [
        pytest.param({"error": {"message": "out of luck", "code": "bad_luck"}}, None, "bad_luck", id="an object"),
        pytest.param({"error": {"message": "out of luck", "code": 429}}, 429, "429", id="a status for a code"),
        pytest.param({"error": "out of luck"}, None, None, id="a string"),
        pytest.param({"object": "error", "message": "out of luck", "code": 400}, 400, "400", id="as vLLM once did"),
        pytest.param([{"error": {"message": "out of luck", "code": 400}}], 400, "400", id="in a list, as Gemini does"),
        pytest.param({"choices": [{"error": {"message": "out of luck"}}]}, None, None, id="in the choice"),
    ],
)
async def test_an_error_in_a_response_with_status_200_is_an_error(
    value: Any, status: Any, code: Any, stream: bool
) -> None:
    with pytest.raises(ProviderError, match="out of luck") as caught:
        await ask(events(value) if stream else one_json(value), stream=stream)

    assert (caught.value.status, caught.value.code) == (status, code)


async def test_comments_and_chunks_that_are_not_json_are_skipped() -> None:
    answer = events(delta({"content": "Hel"}))
    noise = Raw(
        (
            b": PROCESSING\n\n",
            b"data: ping\n\n",
            b"data:\n\n",
            *answer.chunks[:1],
            *events(delta({"content": "lo"}, "stop")).chunks,
        )
    )

    heard = await ask(noise)

    assert heard.text == "Hello"
    assert heard.completion.notes == ("parts of the reply that could not be read: 1",)


TOOLS = (
    ToolSpec("add", "Adds", {"type": "object", "properties": {"x": {"type": "integer"}}}),
    ToolSpec("now", "", {"type": "object", "properties": {}}),
)


async def test_a_request_has_the_configured_fields() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = ChatProvider(
            "m",
            Endpoint(endpoint.url),
            EndpointProfile(extra_body={"seed": 7}),
            settings=ModelSettings(temperature=0.5, max_tokens=9),
        )
        await hear(provider, Message.system("Be kind"), Message.user("Hi"), tools=TOOLS, stop=("\nObservation",))
        await hear(provider, tools=TOOLS, tool_choice=ToolChoice.NONE, stream=False, max_tokens=5)
        await provider.aclose()

    assert endpoint.requests[0].json == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop": ["\nObservation"],
        "max_tokens": 9,
        "temperature": 0.5,
        "seed": 7,
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Adds", "parameters": dict(TOOLS[0].input_schema)},
            },
            {"type": "function", "function": {"name": "now", "parameters": dict(TOOLS[1].input_schema)}},
        ],
    }
    assert endpoint.requests[1].json["tool_choice"] == "none"
    assert endpoint.requests[1].json["max_tokens"] == 5
    assert endpoint.requests[1].json["stream"] is False


async def test_an_endpoint_that_ignores_tool_choice_gets_no_tools_for_a_final_answer() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), OLLAMA)
        await hear(provider, tools=TOOLS, tool_choice=ToolChoice.NONE)
        await hear(provider, tools=TOOLS)
        await provider.aclose()

    assert "tools" not in endpoint.requests[0].json
    assert "tool_choice" not in endpoint.requests[0].json
    assert len(endpoint.requests[1].json["tools"]) == 2


async def test_changed_tools_are_serialized_again() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        for tools in (TOOLS, TOOLS, TOOLS[:1], ()):
            await hear(provider, tools=tools)
        await provider.aclose()

    assert [len(request.json.get("tools", ())) for request in endpoint.requests] == [2, 2, 1, 0]


async def test_tools_that_are_added_have_the_same_bytes_as_tools_that_were_offered_from_the_beginning() -> None:
    bodies = []
    for offers in ((TOOLS[:1], TOOLS, TOOLS[::-1]), (TOOLS,), (TOOLS[::-1],)):
        with model_endpoint([Say("Hi")]) as endpoint:
            provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
            for tools in offers:
                await hear(provider, tools=tools)
            await provider.aclose()
        bodies.append([request.body for request in endpoint.requests])

    assert bodies[0][1:] == [bodies[1][0], bodies[2][0]]


async def test_one_connection_serves_all_rounds() -> None:
    with model_endpoint([Say("Hi", (Call("add"),))]) as endpoint:
        provider = ChatProvider("m", Endpoint(endpoint.url), CHAT)
        for stream in (True, True, False, True):
            await hear(provider, stream=stream)
        await provider.aclose()

    assert endpoint.connections == 1
