"""The same turn over all three model APIs, and features of the Responses API."""

from __future__ import annotations

from typing import Any

import jiter
import pytest

from tests.inner import (
    Api,
    FinishReason,
    ImagePart,
    Message,
    ProviderError,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolChoice,
    ToolSpec,
    Usage,
    parse_usage,
)
from tests.support.images import PIXEL
from tests.support.model_endpoint import (
    Answer,
    Call,
    ParsedReply,
    Raw,
    Say,
    events,
    hear,
    model_endpoint,
    one_json,
    provider_of,
)

pytestmark = pytest.mark.anyio

WIRES = pytest.mark.parametrize("wire", list(Api))
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
TOOLS = (ToolSpec("time__now", "The time", {"type": "object", "properties": {"tz": {"type": "string"}}}),)


async def ask(wire: Api, answer: Answer, *messages: Message, **request: Any) -> ParsedReply:
    with model_endpoint([answer]) as endpoint:
        provider = provider_of(endpoint, wire)
        try:
            return await hear(provider, *messages, **request)
        finally:
            await provider.aclose()


@WIRES
@STREAMED
async def test_a_turn_with_two_calls_is_the_same_with_every_api(wire: Api, stream: bool) -> None:
    asks = Say("I look.", (Call("time__now", {"tz": "UTC"}), Call("time__now", {}, "call_2")), reasoning="Hm")
    question = [Message.system("Be kind"), Message.user("What time is it?")]
    with model_endpoint([asks, Say("Noon.")]) as endpoint:
        provider = provider_of(endpoint, wire)
        first = await hear(provider, *question, tools=TOOLS, stream=stream)
        results = [Message.tool(call, ToolCallResult(call.id, success=True, content="12:00")) for call in first.calls]
        second = await hear(provider, *question, first.message(provider), *results, tools=TOOLS, stream=stream)
        await provider.aclose()

    assert (first.text, first.reasoning) == ("I look.", "Hm")
    assert first.asked == [("time__now", {"tz": "UTC"}), ("time__now", {})]
    assert [call.id for call in first.calls] == ["call_1", "call_2"]
    assert first.completion.finish is FinishReason.TOOL_CALLS
    assert first.completion.usage == Usage(11, 7)
    assert second.text == "Noon."
    assert second.completion.finish is FinishReason.STOP
    assert [request.json["stream"] for request in endpoint.requests] == [stream, stream]
    assert [request.json["model"] for request in endpoint.requests] == ["m", "m"]
    assert endpoint.requests[0].json["tools"] == endpoint.requests[1].json["tools"]


@WIRES
@STREAMED
async def test_a_reply_truncated_by_the_token_limit_runs_no_calls(wire: Api, stream: bool) -> None:
    finish = {Api.CHAT: "length", Api.RESPONSES: "max_output_tokens", Api.MESSAGES: "max_tokens"}[wire]

    heard = await ask(wire, Say("Well", (Call("time__now", '{"tz'),), finish=finish), stream=stream)

    assert heard.text == "Well"
    assert heard.calls == []
    assert heard.completion.finish is FinishReason.LENGTH
    assert heard.completion.echo is None
    assert heard.completion.notes == ("the reply is incomplete: its tool calls are not run",)


@WIRES
async def test_unreadable_arguments_are_passed_on_and_not_sent_back(wire: Api) -> None:
    with model_endpoint([Say("", (Call("time__now", "{'tz': "),)), Say("Sorry")]) as endpoint:
        provider = provider_of(endpoint, wire)
        heard = await hear(provider)
        result = Message.tool(heard.calls[0], ToolCallResult("call_1", success=False, content="no JSON"))
        await hear(provider, Message.user("Hello?"), heard.message(provider), result)
        await provider.aclose()

    assert heard.calls == [ToolCallRequest("call_1", "time__now", {}, unreadable="{'tz': ")]
    assert b"{'tz'" not in endpoint.requests[1].body


@WIRES
async def test_a_broken_stream_keeps_the_text_so_far(wire: Api) -> None:
    whole = {
        Api.CHAT: events({"choices": [{"delta": {"content": "Half an"}}]}, done=False, cut=True),
        Api.RESPONSES: events({"type": "response.output_text.delta", "delta": "Half an"}, done=False, cut=True),
        Api.MESSAGES: events(
            {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half an"}},
            done=False,
            cut=True,
        ),
    }

    heard = await ask(wire, whole[wire])

    assert heard.text == "Half an"
    assert heard.completion.finish is FinishReason.CUT
    assert "broke off" in heard.completion.notes[0]


@WIRES
async def test_a_stream_that_breaks_before_any_content_is_an_error(wire: Api) -> None:
    with pytest.raises(ProviderError) as caught:
        await ask(wire, Raw(cut=True))

    assert caught.value.code == "connection"


@WIRES
async def test_an_empty_reply_is_an_error(wire: Api) -> None:
    with pytest.raises(ProviderError, match="sent no reply"):
        await ask(wire, Raw())


@WIRES
async def test_an_error_in_the_stream_is_an_error(wire: Api) -> None:
    failure = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    with pytest.raises(ProviderError, match="Overloaded") as caught:
        await ask(wire, events(failure, done=False))

    assert caught.value.code == "overloaded_error"


@WIRES
async def test_images_of_users_and_of_tools_are_sent_to_the_model(wire: Api) -> None:
    pixel = ImagePart(PIXEL, "image/png")
    call = ToolCallRequest("a", "screenshot", {})
    shown = ToolCallResult("a", success=True, content=(TextPart("Here"), pixel))
    conversation = [
        Message(Role.USER, (TextPart("Look"), pixel)),
        Message.assistant("", [call]),
        Message.tool(call, shown),
    ]
    with model_endpoint([Say("I see")]) as endpoint:
        provider = provider_of(endpoint, wire)
        await hear(provider, *conversation)
        await provider.aclose()

    assert endpoint.requests[0].body.count(PIXEL.encode()) == 2


@WIRES
async def test_a_final_answer_is_requested_with_tool_choice_none(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire)
        await hear(provider, tools=TOOLS, tool_choice=ToolChoice.NONE)
        await provider.aclose()

    sent = endpoint.requests[0].json
    assert sent["tool_choice"] == ({"type": "none"} if wire is Api.MESSAGES else "none")
    assert len(sent["tools"]) == 1


@WIRES
async def test_another_providers_echo_is_not_sent(wire: Api) -> None:
    with model_endpoint([Say("I look.", (Call("time__now"),), reasoning="SECRET"), Say("Fine")]) as endpoint:
        first, second = provider_of(endpoint, wire), provider_of(endpoint, wire, model="another")
        heard = await hear(first)
        await hear(second, Message.user("Hello?"), heard.message(first))
        await first.aclose()
        await second.aclose()

    assert heard.completion.echo is not None
    assert b"SECRET" not in endpoint.requests[1].body
    assert b"time__now" in endpoint.requests[1].body


@WIRES
async def test_strict_tools_are_sent_only_on_request(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        for strict in (False, True):
            provider = provider_of(endpoint, wire, quirks={"strict": strict})
            await hear(provider, tools=TOOLS)
            await provider.aclose()

    loose, strict_ = (request.json["tools"][0] for request in endpoint.requests)
    assert loose.get("function", loose).get("strict") is (False if wire is Api.RESPONSES else None)
    assert strict_.get("function", strict_)["strict"] is True


# The Responses API


async def test_all_output_items_are_sent_back_unchanged_before_the_results() -> None:
    with model_endpoint(
        [Say("I look.", (Call("time__now", {"tz": "UTC"}),), reasoning="Hm"), Say("Noon.")]
    ) as endpoint:
        provider = provider_of(endpoint, Api.RESPONSES)
        heard = await hear(provider, Message.system("Be kind"), Message.user("Time?"), tools=TOOLS)
        result = Message.tool(heard.calls[0], ToolCallResult("call_1", success=True, content="12:00"))
        await hear(provider, Message.user("Time?"), heard.message(provider), result, tools=TOOLS)
        await provider.aclose()

    first, second = (request.json for request in endpoint.requests)
    assert first["store"] is False
    assert first["include"] == ["reasoning.encrypted_content"]
    assert first["instructions"] == "Be kind"
    assert first["tools"][0]["strict"] is False
    assert second["input"][1:4] == heard.completion.echo
    assert second["input"][1]["encrypted_content"] == "c2VjcmV0"
    assert second["input"][4] == {"type": "function_call_output", "call_id": "call_1", "output": "12:00"}


@pytest.mark.parametrize(
    ("last", "finish"),
    [
        pytest.param(
            {"type": "response.completed", "response": {"status": "completed"}}, FinishReason.STOP, id="completed"
        ),
        pytest.param(
            {
                "type": "response.incomplete",
                "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            },
            FinishReason.REFUSED,
            id="filtered",
        ),
        pytest.param(
            {"type": "response.incomplete", "response": {"status": "incomplete"}}, FinishReason.LENGTH, id="incomplete"
        ),
        pytest.param(
            {"type": "response.cancelled", "response": {"status": "cancelled"}}, FinishReason.CUT, id="cancelled"
        ),
        pytest.param({"type": "response.in_progress"}, FinishReason.CUT, id="no last event"),
        pytest.param(
            {
                "type": "response.completed",
                "response": {"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal"}]}]},
            },
            FinishReason.REFUSED,
            id="refused",
        ),
    ],
)
async def test_the_end_states_of_a_response_are_distinguished(last: Any, finish: FinishReason) -> None:
    heard = await ask(Api.RESPONSES, events({"type": "response.output_text.delta", "delta": "Hi"}, last, done=False))

    assert heard.text == "Hi"
    assert heard.completion.finish is finish


@STREAMED
async def test_a_failed_response_is_an_error_with_the_reason(stream: bool) -> None:
    response = {"object": "response", "status": "failed", "error": {"code": "server_error", "message": "Out of luck"}}
    answer = events({"type": "response.failed", "response": response}, done=False) if stream else one_json(response)

    with pytest.raises(ProviderError, match="Out of luck") as caught:
        await ask(Api.RESPONSES, answer, stream=stream)

    assert caught.value.code == "server_error"


async def test_a_response_is_complete_after_its_last_event() -> None:
    completed = {"type": "response.completed", "response": {"status": "completed", "output": []}}

    heard = await ask(Api.RESPONSES, events(completed, done=False, hang=True))

    assert heard.completion.finish is FinishReason.STOP


async def test_two_messages_of_one_response_are_separated() -> None:
    deltas = [{"type": "response.output_text.delta", "output_index": at, "delta": text} for at, text in enumerate("ab")]
    last = {"type": "response.completed", "response": {"status": "completed"}}

    assert (await ask(Api.RESPONSES, events(*deltas, last, done=False))).text == "a\n\nb"


@pytest.mark.parametrize("value", ["1e999", "-1", "NaN", "true", "9" * 400, '"7"', "null", "[]"])
def test_invalid_token_counts_are_zero(value: str) -> None:
    usage = jiter.from_json(f'{{"prompt_tokens": {value}, "completion_tokens": 7.0}}'.encode())

    assert parse_usage(usage) == Usage(0, 7)


SETTINGS = {"temperature": 0.5, "top_p": 0.9, "seed": 3, "max_tokens": 50, "thinking": "high"}
SENT: dict[Api, dict[str, Any]] = {
    Api.CHAT: {"temperature": 0.5, "top_p": 0.9, "seed": 3, "max_tokens": 50, "reasoning_effort": "high"},
    Api.RESPONSES: {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 50, "reasoning": {"effort": "high"}},
    Api.MESSAGES: {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 50,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
    },
}


@WIRES
async def test_settings_of_a_request_are_sent_as_the_api_names_them(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire)
        plain = await hear(provider)
        heard = await hear(provider, **SETTINGS)
        await provider.aclose()

    before, sent = (request.json for request in endpoint.requests)
    assert {name: value for name, value in sent.items() if before.get(name) != value} == SENT[wire]
    assert plain.completion.notes == ()
    assert heard.completion.notes == (() if wire is Api.CHAT else ("the endpoint accepts no seed: none is sent",))


@WIRES
async def test_settings_of_a_request_come_before_those_of_the_profile_and_its_limit_bounds_the_reply(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire, temperature=0.1, max_tokens=100)
        for settings in ({}, {"temperature": 0.0, "max_tokens": 50}, {"max_tokens": 200}):
            await hear(provider, **settings)
        await provider.aclose()

    limit = "max_output_tokens" if wire is Api.RESPONSES else "max_tokens"
    sent = [(request.json["temperature"], request.json[limit]) for request in endpoint.requests]
    assert sent == [(0.1, 100), (0.0, 50), (0.1, 100)]


@WIRES
async def test_thinking_can_be_switched_off_or_kept_low(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire)
        await hear(provider, thinking="none")
        await hear(provider, thinking="minimal")
        await provider.aclose()

    off, low = (request.json for request in endpoint.requests)
    match wire:
        case Api.CHAT:
            assert (off["reasoning_effort"], low["reasoning_effort"]) == ("none", "minimal")
        case Api.RESPONSES:
            assert (off["reasoning"], low["reasoning"]) == ({"effort": "none"}, {"effort": "minimal"})
        case Api.MESSAGES:
            assert (off["thinking"], off.get("output_config")) == ({"type": "disabled"}, None)
            assert (low["thinking"], low["output_config"]) == ({"type": "adaptive"}, {"effort": "low"})


NAMED: dict[Api, Any] = {
    Api.CHAT: {"type": "function", "function": {"name": TOOLS[0].name}},
    Api.RESPONSES: {"type": "function", "name": TOOLS[0].name},
    Api.MESSAGES: {"type": "tool", "name": TOOLS[0].name},
}


@WIRES
async def test_a_call_can_be_required_or_named(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire)
        for choice in ("required", TOOLS[0].name, "auto"):
            await hear(provider, tools=TOOLS, tool_choice=choice)
        await provider.aclose()

    sent = [request.json.get("tool_choice") for request in endpoint.requests]
    assert sent == [{"type": "any"} if wire is Api.MESSAGES else "required", NAMED[wire], None]


@WIRES
async def test_a_reply_with_one_call_at_most_is_asked_for_in_the_words_of_the_api(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire)
        for settings in ({}, {"tool_choice": "required"}, {"tool_choice": "none"}):
            await hear(provider, tools=TOOLS, parallel_calls=False, **settings)
        await hear(provider, parallel_calls=False)
        await hear(provider, tools=TOOLS, parallel_calls=True)
        await provider.aclose()

    sent = [request.json for request in endpoint.requests]
    if wire is Api.MESSAGES:
        marks = [body.get("tool_choice", {}).get("disable_parallel_tool_use") for body in sent]
        assert marks == [True, True, None, None, None]
    else:
        assert [body.get("parallel_tool_calls") for body in sent] == [False, False, False, None, None]


@WIRES
async def test_a_forced_call_of_a_tool_that_is_not_offered_is_left_out_with_a_note(wire: Api) -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, wire)
        unknown = await hear(provider, tools=TOOLS, tool_choice="unknown")
        nothing = await hear(provider, tool_choice="required")
        await provider.aclose()

    assert all("tool_choice" not in request.json for request in endpoint.requests)
    assert unknown.completion.notes == ("tool_choice is left out: the request does not offer unknown",)
    assert nothing.completion.notes == ("tool_choice is left out: the request does not offer any tool",)


async def test_an_endpoint_that_cannot_force_a_call_gets_all_tools_and_no_choice() -> None:
    with model_endpoint([Say("Fine")]) as endpoint:
        provider = provider_of(endpoint, quirks={"forced_choice": False})
        heard = await hear(provider, tools=TOOLS, tool_choice="required")
        await provider.aclose()

    assert "tool_choice" not in endpoint.requests[0].json
    assert len(endpoint.requests[0].json["tools"]) == len(TOOLS)
    assert "a forced call" in heard.completion.notes[0]
