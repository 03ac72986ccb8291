"""Features of the Messages API: blocks that are sent back, pauses, stop reasons, token limits and API versions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.inner import Api, FinishReason, Message, ProviderError, ToolCallRequest, Usage
from tests.support.model_endpoint import (
    Answer,
    ParsedReply,
    Recorded,
    Say,
    events,
    hear,
    model_endpoint,
    one_json,
    provider_of,
    refuse,
)

pytestmark = pytest.mark.anyio


async def ask(answer: Answer, **request: Any) -> ParsedReply:
    with model_endpoint([answer]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        try:
            return await hear(provider, **request)
        finally:
            await provider.aclose()


Block = tuple[dict[str, Any], list[dict[str, Any]]]


def message_events(*blocks: Block, stop: str | None) -> list[dict[str, Any]]:
    stream: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": {"input_tokens": 3}}}]
    for at, (start, deltas) in enumerate(blocks):
        stream.append({"type": "content_block_start", "index": at, "content_block": start})
        stream.extend({"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas)
        stream.append({"type": "content_block_stop", "index": at})
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}}
    return [*stream, end, {"type": "message_stop"}]


TEXT: Block = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Hi"}])


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("refusal", FinishReason.REFUSED),
        ("a_future_reason", FinishReason.CUT),
        (None, FinishReason.STOP),
    ],
)
async def test_the_stop_reasons_of_a_message_are_distinguished(stop: str | None, finish: FinishReason) -> None:
    heard = await ask(events(*message_events(TEXT, stop=stop), done=False))

    assert heard.text == "Hi"
    assert heard.completion.finish is finish


async def test_a_message_without_a_stop_event_is_truncated() -> None:
    heard = await ask(events(*message_events(TEXT, stop=None)[:-2], done=False))

    assert heard.completion.finish is FinishReason.CUT


async def test_a_call_of_a_complete_message_is_run_with_any_stop_reason() -> None:
    use: Block = ({"type": "tool_use", "id": "a", "name": "now", "input": {}}, [])

    heard = await ask(events(*message_events(TEXT, use, stop="end_turn"), done=False))

    assert heard.asked == [("now", {})]


async def test_thinking_and_unknown_blocks_are_sent_back_unmodified() -> None:
    blocks: list[Block] = [
        ({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "signature_delta", "signature": "c2ln"}]),
        ({"type": "redacted_thinking", "data": "eHh4"}, []),
        ({"type": "text", "text": ""}, []),
        TEXT,
        ({"type": "future_block", "data": "?"}, [{"type": "future_delta", "more": 1}]),
        (
            {"type": "tool_use", "id": "a", "name": "now", "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"tz"', ': "UTC"}')],
        ),
    ]
    with model_endpoint([events(*message_events(*blocks, stop="tool_use"), done=False), Say("Noon")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        heard = await hear(provider)
        await hear(provider, Message.user("Hello?"), heard.message(provider))
        await provider.aclose()

    assert endpoint.requests[1].json["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eHh4"},
        {"type": "text", "text": "Hi"},
        {"type": "future_block", "data": "?", "more": 1},
        {"type": "tool_use", "id": "a", "name": "now", "input": {"tz": "UTC"}},
    ]


async def test_a_paused_reply_is_continued_and_is_one_reply() -> None:
    server_tool: Block = ({"type": "server_tool_use", "id": "s", "name": "web", "input": {}}, [])
    pause = events(*message_events(TEXT, server_tool, stop="pause_turn"), done=False)
    rest = events(
        *message_events(({"type": "text", "text": ""}, [{"type": "text_delta", "text": "!"}]), stop="end_turn")
    )
    with model_endpoint([pause, rest]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        heard = await hear(provider)
        await provider.aclose()

    assert heard.completion.finish is FinishReason.STOP
    assert heard.text.replace("\n", "") == "Hi!"
    assert heard.completion.usage == Usage(6, 4, server_tool_calls=1)
    assert endpoint.requests[1].json["messages"][-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}, {"type": "server_tool_use", "id": "s", "name": "web", "input": {}}],
    }
    assert [block["type"] for block in heard.completion.echo] == ["text", "server_tool_use", "text"]


async def test_the_number_of_pauses_of_a_reply_is_limited() -> None:
    with model_endpoint([events(*message_events(TEXT, stop="pause_turn"), done=False)]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        heard = await hear(provider)
        await provider.aclose()

    assert heard.completion.finish is FinishReason.CUT
    assert len(endpoint.requests) == 9


async def test_tokens_read_from_and_written_to_the_cache_are_counted() -> None:
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 300,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 4},
    }

    heard = await ask(one_json({"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}))

    assert heard.completion.usage == Usage(321, 5, 300, 4, 20)


async def test_a_request_with_a_high_token_limit_is_always_streamed() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        for limit in (None, 21_333, 21_334):
            await hear(provider, stream=False, max_tokens=limit)
        await provider.aclose()

    sent = [(request.json["max_tokens"], request.json["stream"]) for request in endpoint.requests]
    assert sent == [(8192, False), (21_333, False), (21_334, True)]


async def test_a_history_with_calls_is_never_sent_without_tools() -> None:
    call = ToolCallRequest("a", "now", {})
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        await hear(provider, Message.user("?"), Message.assistant("", [call]))
        await provider.aclose()

    sent = endpoint.requests[0].json
    assert [tool["name"] for tool in sent["tools"]] == ["now"]
    assert sent["tool_choice"] == {"type": "none"}


async def test_an_unsupported_temperature_is_not_sent_and_noted_once() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES, temperature=0.5, quirks={"sampling": False})
        first, second = await hear(provider), await hear(provider)
        await provider.aclose()

    assert first.completion.notes == ("the endpoint accepts no temperature: none is sent",)
    assert second.completion.notes == ()
    assert all("temperature" not in request.json for request in endpoint.requests)


VERSION_REFUSED = refuse(400, 'anthropic-version: "2026-10-21" is not a valid version')


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_with_an_unknown_version_is_repeated_with_the_previous_version(stream: bool) -> None:
    with model_endpoint([VERSION_REFUSED, Say("Hi")]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        first, second = await hear(provider, stream=stream), await hear(provider, stream=stream)
        await provider.aclose()

    versions = [request.headers["anthropic-version"] for request in endpoint.requests]
    assert versions == ["2026-10-21", "2023-06-01", "2023-06-01"]
    assert (first.text, second.text) == ("Hi", "Hi")
    assert first.completion.notes == ("the endpoint does not accept version 2026-10-21 of the API: 2023-06-01 is sent",)
    assert second.completion.notes == ()


async def test_an_endpoint_that_refuses_every_version_gets_two_requests() -> None:
    with model_endpoint([VERSION_REFUSED]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES)
        with pytest.raises(ProviderError, match="is not a valid version"):
            await hear(provider)
        await provider.aclose()

    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("settings", [{"api_version": "2023-06-01"}, {"headers": {"anthropic-version": "2024-01-01"}}])
async def test_a_version_of_the_profile_is_never_changed(settings: dict[str, Any]) -> None:
    with model_endpoint([VERSION_REFUSED]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES, quirks=settings)
        with pytest.raises(ProviderError, match="is not a valid version"):
            await hear(provider)
        await provider.aclose()

    assert len(endpoint.requests) == 1


def is_older(request: Recorded) -> bool:
    return request.headers["anthropic-version"] == "2023-06-01"


async def test_concurrent_requests_all_fall_back_to_the_older_version() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        endpoint.answer_to = lambda request: Say("Hi") if is_older(request) else VERSION_REFUSED
        provider = provider_of(endpoint, Api.MESSAGES)
        texts = []

        async def ask_once() -> None:
            texts.append((await hear(provider)).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_once)
            tasks.start_soon(ask_once)
        await provider.aclose()

    assert texts == ["Hi", "Hi"]


async def test_a_note_has_the_reason_of_a_refusal() -> None:
    refusal = message_events(TEXT, stop="refusal")
    refusal[-2]["delta"]["stop_details"] = {"type": "refusal", "explanation": "Not that."}

    heard = await ask(events(*refusal, done=False))

    assert heard.completion.notes == ("the model refused: Not that.",)
