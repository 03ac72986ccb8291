"""Server-side tools of model APIs: offered, shown, sent back and never run by the client; citations and images."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from dial_client import DialClient, Finished, Message, ToolCallFinished, ToolCallStarted
from tests.inner import (
    Api,
    CallNext,
    Citation,
    ConfigError,
    ImagePart,
    Middleware,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    StatusChanged,
    StopReason,
    TextPart,
    Usage,
    build_server_tools,
    to_dict,
)
from tests.support.model_endpoint import events, model_endpoint, one_json, provider_of

pytestmark = pytest.mark.anyio

URL = "https://a.test/tower"
SEARCH = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "tower"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv1",
    "content": [{"type": "web_search_result", "title": "Tower", "url": URL, "encrypted_content": "c2Vj"}],
}
CITED = {
    "type": "web_search_result_location",
    "url": URL,
    "title": "Tower",
    "cited_text": "It is 330 m tall.",
    "encrypted_index": "aWR4",
}
MESSAGE: dict[str, Any] = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1}},
    "content": [
        {"type": "text", "text": "Let me see."},
        SEARCH,
        FOUND,
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "330 m", "citations": [CITED]},
        {"type": "text", "text": " tall."},
    ],
}
PIXEL = "iVBORw0KGgo="
ITEMS: list[dict[str, Any]] = [
    {
        "type": "message",
        "id": "msg0",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "I will search.", "annotations": []}],
    },
    {
        "type": "web_search_call",
        "id": "ws1",
        "status": "completed",
        "action": {"type": "search", "query": "tower", "sources": [{"type": "url", "url": URL}]},
    },
    {"type": "image_generation_call", "id": "ig1", "status": "completed", "result": PIXEL, "revised_prompt": "a tower"},
    {
        "type": "message",
        "id": "msg1",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
        "content": [
            {
                "type": "output_text",
                "text": "It is 330 m tall.",
                "annotations": [
                    {"type": "url_citation", "url": URL, "title": "Tower", "start_index": 6, "end_index": 11}
                ],
            }
        ],
    },
]
RESPONSE = {"object": "response", "status": "completed", "output": ITEMS, "usage": {"input_tokens": 9}}


def message_stream() -> list[dict[str, Any]]:
    """Return the events of `MESSAGE`, with the citation before its text."""
    stream: list[dict[str, Any]] = [
        {"type": "message_start", "message": MESSAGE | {"content": [], "stop_reason": None}}
    ]
    for at, block in enumerate(MESSAGE["content"]):
        empty: dict[str, Any] = {"text": "", "citations": None} if block["type"] == "text" else {}
        empty |= {"input": {}} if "input" in block else {}
        deltas: list[dict[str, Any]] = [
            {"type": "citations_delta", "citation": cited} for cited in block.get("citations", ())
        ]
        if "text" in block:
            deltas += [{"type": "text_delta", "text": piece} for piece in (block["text"][:2], block["text"][2:])]
        if "input" in block:
            deltas += [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        stream.append({"type": "content_block_start", "index": at, "content_block": block | empty})
        stream += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        stream.append({"type": "content_block_stop", "index": at})
    stream.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}})
    return [*stream, {"type": "message_stop"}]


def response_stream() -> list[dict[str, Any]]:
    """Return the events of `RESPONSE`."""
    stream: list[dict[str, Any]] = []
    for at, item in enumerate(ITEMS):
        begun: dict[str, Any] = {"status": "in_progress", "content": [], "action": {}, "result": None}
        added = {name: begun.get(name, value) for name, value in item.items()}
        stream.append({"type": "response.output_item.added", "output_index": at, "item": added})
        for part in item.get("content", ()):
            place = {"output_index": at, "content_index": 0}
            pieces = (part["text"][:3], part["text"][3:])
            stream += [{"type": "response.output_text.delta", **place, "delta": piece} for piece in pieces]
            stream += [
                {
                    "type": "response.output_text.annotation.added",
                    **place,
                    "annotation_index": number,
                    "annotation": annotation,
                }
                for number, annotation in enumerate(part["annotations"])
            ]
        stream.append({"type": "response.output_item.done", "output_index": at, "item": item})
    return [*stream, {"type": "response.completed", "response": RESPONSE | {"output": []}}]


@pytest.mark.parametrize("stream", [True, False])
async def test_searches_and_citations_of_the_messages_api_are_shown_and_sent_back(stream: bool) -> None:
    answer = events(*message_stream(), done=False) if stream else one_json(MESSAGE)
    with model_endpoint([answer, one_json(MESSAGE)]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES, quirks={"server_tools": ["web_search", {"type": "own"}]})
        async with DialClient(provider) as dial:
            turn_events = [event async for event in dial.stream([Message.user("How tall?")])]
            assert isinstance(turn_events[-1], Finished)
            turn = turn_events[-1].turn
            await dial.run([*turn.messages, Message.user("Sure?")])

    assert turn.text == "Let me see.\n\nIt is 330 m tall."
    assert turn.citations == (Citation(URL, "Tower", URL, "It is 330 m tall.", start=19, end=24),)
    assert turn.text[19:24] == "330 m"
    assert turn.usage == Usage(9, 5, server_tool_calls=1)
    assert turn.message.taint == "127.0.0.1/web_search"
    [record] = turn.tool_calls
    assert (record.call.name, record.call.arguments, record.server) == ("web_search", {"query": "tower"}, "127.0.0.1")
    assert record.by_endpoint
    assert record.result.content == f"Tower - {URL}"
    first, second = (request.json for request in endpoint.requests)
    assert first["tools"] == [{"type": "web_search_20250305", "name": "web_search"}, {"type": "own"}]
    assert second["messages"][1]["content"] == [
        {"citations": None} | block if stream and block["type"] == "text" and "citations" not in block else block
        for block in MESSAGE["content"]
    ]
    calls = [event for event in turn_events if isinstance(event, ToolCallStarted | ToolCallFinished)]
    assert [(type(event), event.by_endpoint) for event in calls] == [(ToolCallStarted, True), (ToolCallFinished, True)]
    assert to_dict(calls[0])["by_endpoint"] is True


@pytest.mark.parametrize("stream", [True, False])
async def test_searches_images_and_commentary_of_the_responses_api_are_shown(stream: bool) -> None:
    answer = events(*response_stream(), done=False) if stream else one_json(RESPONSE)
    with model_endpoint([answer, one_json(RESPONSE)]) as endpoint:
        provider = provider_of(endpoint, Api.RESPONSES, quirks={"server_tools": ["web_search", "code_execution"]})
        async with DialClient(provider) as dial:
            turn_events = [event async for event in dial.stream([Message.user("How tall?")])]
            assert isinstance(turn_events[-1], Finished)
            turn = turn_events[-1].turn
            await dial.run([*turn.messages, Message.user("Sure?")])

    assert turn.text == "It is 330 m tall."
    assert turn.message.content == (TextPart("It is 330 m tall."), ImagePart(PIXEL, "image/png"))
    assert turn.citations == (Citation(URL, "Tower", URL, start=6, end=11),)
    assert [record.call.name for record in turn.tool_calls] == ["web_search", "image_generation"]
    assert turn.tool_calls[0].call.arguments == {"type": "search", "query": "tower"}
    assert turn.usage.server_tool_calls == 2
    assert StatusChanged("I will search.") in turn_events
    assert "".join(event.text for event in turn_events if isinstance(event, ReasoningDelta)) == "I will search.\n\n"
    first, second = (request.json for request in endpoint.requests)
    assert first["tools"] == [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    assert first["include"][1:] == ["web_search_call.action.sources", "code_interpreter_call.outputs"]
    assert second["input"][1:-1] == ITEMS


IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
PARTS = [
    {"type": "text", "text": "A"},
    {"type": "image_url", "image_url": "https://i.test/x.png"},
    {"type": "reference", "reference_ids": [1]},
]
PERPLEXITY: dict[str, Any] = {
    "choices": [{"message": {"role": "assistant", "content": "Blue [2], not red [1]."}, "finish_reason": "stop"}],
    "citations": ["https://red.test", "https://blue.test"],
    "search_results": [{"title": "Red", "url": "https://red.test"}, {"title": "Blue", "url": "https://blue.test"}],
}
GROUNDED: dict[str, Any] = {
    "choices": [
        {
            "message": {"role": "assistant", "content": "Grüße. It is blue."},
            "finish_reason": "stop",
            "grounding_metadata": {
                "groundingChunks": [
                    {"web": {"uri": "https://b.test", "title": "b.test"}},
                    {"web": {"uri": "https://c.test"}},
                ],
                "groundingSupports": [
                    {"segment": {"startIndex": 9, "endIndex": 20, "text": "It is blue."}, "groundingChunkIndices": [0]}
                ],
            },
        }
    ]
}
ANNOTATED: dict[str, Any] = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "It is blue.",
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {"url": "https://b.test", "title": "B", "start_index": 6, "end_index": 10},
                    }
                ],
            },
            "finish_reason": "stop",
        }
    ]
}


def as_stream(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a response as three chunks; the last chunk has the fields beside the text."""
    choice = whole["choices"][0]
    text, rest = choice["message"]["content"], {k: v for k, v in choice["message"].items() if k != "content"}
    beside = {name: value for name, value in choice.items() if name != "message"}
    deltas = [{"content": text[:4]}, {"content": text[4:]}]
    last = {**whole, "choices": [{**beside, "delta": rest | {"content": ""}}]}
    return [*({"choices": [{"delta": delta}]} for delta in deltas), last]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (PERPLEXITY, [("1", "Red", "https://red.test", "[1]"), ("2", "Blue", "https://blue.test", "[2]")]),
        (
            GROUNDED,
            [
                ("https://b.test", "b.test", "https://b.test", "It is blue."),
                ("https://c.test", "", "https://c.test", None),
            ],
        ),
        (ANNOTATED, [("https://b.test", "B", "https://b.test", "blue")]),
    ],
)
async def test_citations_of_different_chat_endpoints_are_read(
    whole: dict[str, Any], expected: list[tuple[str, str, str, str | None]], stream: bool
) -> None:
    with model_endpoint([events(*as_stream(whole)) if stream else one_json(whole)]) as endpoint:
        async with DialClient(provider_of(endpoint)) as dial:
            turn = await dial.run([Message.user("Which colour?")])
    found = [
        (cited.source, cited.title, cited.url, None if cited.end is None else turn.text[cited.start : cited.end])
        for cited in turn.citations
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("message", "content", "notes"),
    [
        ({"content": {"answer": 4}}, '{"answer":4}', ()),
        ({"content": 42}, "42", ()),
        ({"content": None, "audio": {"id": "a", "data": "AAAA" * 1000, "transcript": "Hello"}}, "Hello", ("audio",)),
        ({"content": "Look", "images": [IMAGE]}, (TextPart("Look"), ImagePart(PIXEL, "image/png")), ()),
        ({"content": None, "images": [IMAGE]}, (ImagePart(PIXEL, "image/png"),), ()),
        ({"content": PARTS}, "A", ("https://i.test/x.png", "reference")),
    ],
)
async def test_content_of_an_unexpected_type_becomes_text_a_part_or_a_note(
    message: dict[str, Any], content: Any, notes: tuple[str, ...]
) -> None:
    answer = one_json({"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]})
    with model_endpoint([answer]) as endpoint:
        async with DialClient(provider_of(endpoint)) as dial:
            turn = await dial.run([Message.user("Well?")])
    assert turn.message.content == content
    assert turn.stop_reason is StopReason.ANSWERED
    assert [note for note in notes if not any(note in turn_note for turn_note in turn.notes)] == []
    assert len(turn.notes) == len(notes)


async def test_a_search_without_a_content_block_stop_is_shown() -> None:
    stream = [event for event in message_stream() if event["type"] != "content_block_stop"]
    with model_endpoint([events(*stream, done=False)]) as endpoint:
        async with DialClient(provider_of(endpoint, Api.MESSAGES)) as dial:
            turn = await dial.run([Message.user("How tall?")])
    [record] = turn.tool_calls
    assert (record.call.arguments, record.result.success) == ({"query": "tower"}, True)
    assert turn.text == "Let me see.\n\nIt is 330 m tall."


async def test_failed_searches_and_searches_without_a_result_are_failed_calls() -> None:
    failed = FOUND | {"content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}
    pending = SEARCH | {"id": "srv2"}
    body = MESSAGE | {"content": [SEARCH, failed, pending, {"type": "text", "text": "Sorry."}]}
    with model_endpoint([one_json(body)]) as endpoint:
        async with DialClient(provider_of(endpoint, Api.MESSAGES)) as dial:
            turn = await dial.run([Message.user("How tall?")])
    assert turn.text == "Sorry."
    assert [record.result.error for record in turn.tool_calls] == ["max_uses_exceeded", "the endpoint sent no result"]


def test_the_tools_have_the_types_of_the_sdks() -> None:
    from anthropic.types import ToolUnionParam  # the SDKs take seconds to import: only the worker of this test does
    from openai.types.responses import ResponseIncludable, ToolParam

    tools: list[tuple[Api, Any, tuple[str, ...]]] = [
        (Api.MESSAGES, ToolUnionParam, ("web_search", "web_fetch", "code_execution")),
        (Api.RESPONSES, ToolParam, ("web_search", "code_execution", "image_generation")),
    ]
    for wire, kind, names in tools:
        for tool in build_server_tools(names, wire.value).tools:
            assert TypeAdapter(kind).validate_python(tool) == tool
    included = build_server_tools(["web_search", "code_execution", {"type": "file_search"}], "responses").included
    assert [TypeAdapter(ResponseIncludable).validate_python(name) for name in included] == included


def test_an_unknown_tool_is_an_error_that_names_the_nearest_tool() -> None:
    with pytest.raises(ConfigError, match="the messages API has no server tool 'web_serch'") as raised:
        provider_of("http://127.0.0.1:1", Api.MESSAGES, quirks={"server_tools": ["web_serch"]})
    assert "did you mean 'web_search'?" in str(raised.value)


async def test_a_reply_rebuilt_by_middleware_stays_untrusted() -> None:
    class RebuildReply(Middleware):
        async def around_model_call(
            self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
        ) -> ModelReply:
            return ModelReply(message=Message.assistant((await call_next(request)).message.text))

    with model_endpoint([one_json(MESSAGE)]) as endpoint:
        provider = provider_of(endpoint, Api.MESSAGES, quirks={"server_tools": ["web_search"]})
        async with DialClient(provider, middleware=[RebuildReply()]) as dial:
            turn = await dial.run("How tall?")
    assert turn.message.taint == "127.0.0.1/web_search"
