"""The table of docs/models.md has a row for every known endpoint, and a turn with each endpoint fits its row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    PRESETS,
    Api,
    ImagePart,
    Message,
    ModelProfile,
    ModelRequest,
    ModelSettings,
    ProviderError,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolChoice,
    ToolNameMapping,
    ToolSpec,
    Usage,
    open_provider,
)
from tests.integration.test_schema_dialects import check_gemini, check_openai
from tests.support.images import PIXEL
from tests.support.model_endpoint import (
    Answer,
    Call,
    Raw,
    Recorded,
    Say,
    events,
    hear,
    model_endpoint,
    one_json,
    provider_of,
    refuse,
)
from tests.unit.test_wire_history_rules import check_chat, check_messages, check_responses

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
TABLE = DOCUMENT.read_text("utf-8").partition("## Endpoints")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| `([^`]+)` \|", TABLE, re.MULTILINE)
SCHEMA = {
    "type": "object",
    "properties": {"tz": {"oneOf": [{"const": "UTC"}, {"const": "CET"}]}, "at": {"type": "string", "format": "uri"}},
    "additionalProperties": False,
}
TOOLS = (ToolSpec("3d__now", "The time", SCHEMA), ToolSpec("ping", "", {"type": "object", "properties": {}}))
ARGUMENTS = '{"tz": "UTC"}'


def name_at(preset: str) -> str:
    """Return the name of the first tool in requests to the endpoint."""
    profile = PRESETS[preset].profile
    renaming = ToolNameMapping(profile.tool_name_re, profile.tool_name_len)
    return renaming.to_endpoint(ModelRequest((), TOOLS)).tools[0].name


def chunk(delta: dict[str, Any], finish: str | None = None, **beside: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **beside}


def whole(message: dict[str, Any], finish: str = "tool_calls", **beside: Any) -> Raw:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return one_json({"object": "chat.completion", "choices": [choice], "usage": COUNTED, **beside})


def call(preset: str, **beside: Any) -> dict[str, Any]:
    given = {"id": "call_1", "type": "function"} | beside
    return {name: value for name, value in given.items() if value is not None} | {
        "function": {"name": name_at(preset), "arguments": ARGUMENTS}
    }


COUNTED = {"prompt_tokens": 11, "completion_tokens": 7}
LAST = {"object": "chat.completion.chunk", "choices": [], "usage": COUNTED}
FILTERED = {"object": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
SIGNED = {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}
DETAILS = [{"type": "reasoning.text", "text": "Hm", "index": 0, "signature": "s"}]
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
UNREADABLE: dict[str, Any] = {
    "message": "Failed to call a function",
    "code": "tool_use_failed",
    "failed_generation": "<function=x>",
}


@dataclass(frozen=True, slots=True)
class Case:
    """Responses of one endpoint with a tool call, and a check of the next request."""

    streamed: tuple[Answer, ...]
    whole: tuple[Answer, ...]
    check: Callable[[Recorded], None]
    reasoning: str = "Hm"
    described: Raw | None = None
    notes: tuple[str, ...] = ()


def own_call(request: Recorded) -> dict[str, Any]:
    """Return the message of the request that has the endpoint's own call."""
    return next(m for m in reversed(request.json["messages"]) if m.get("tool_calls"))


def foreign_call(request: Recorded) -> dict[str, Any]:
    """Return the message of the request that has another model's call."""
    return next(m for m in request.json["messages"] if m.get("tool_calls"))


def openai(request: Recorded) -> None:
    body = request.json
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert [tool["strict"] for tool in body["tools"]] == [False, False]
    assert [item["encrypted_content"] for item in body["input"] if item.get("type") == "reasoning"] == ["c2VjcmV0"]
    assert "previous_response_id" not in body


def anthropic(request: Recorded) -> None:
    body = request.json
    assert request.headers["anthropic-version"] == "2026-10-21"
    assert body["cache_control"] == {"type": "ephemeral"}
    assert "temperature" not in body
    assert body["max_tokens"] == 50
    streamed_call = next(
        block for message in body["messages"] for block in message["content"] if block["type"] == "thinking"
    )
    assert streamed_call["signature"] == "c2lnbmF0dXJl"


def azure(request: Recorded) -> None:
    assert request.headers["api-key"] == "k"
    assert "authorization" not in request.headers
    assert request.json["max_completion_tokens"] == 50


def dial(request: Recorded) -> None:
    assert request.path.startswith("/openai/deployments/m/chat/completions?api-version=")
    assert request.headers["api-key"] == "k"
    assert own_call(request)["custom_content"] == {"state": {"step": 1}}


def ollama(request: Recorded) -> None:
    assert "tool_choice" not in request.json
    assert own_call(request)["reasoning"] == "Hm"
    assert all(isinstance(m["content"], str) for m in request.json["messages"] if m["role"] == "tool")


def vllm(request: Recorded) -> None:
    assert own_call(request)["reasoning"] == "Hm"


def llama_cpp(request: Recorded) -> None:
    assert request.json["parallel_tool_calls"] is True
    assert own_call(request)["reasoning_content"] == "Hm"


def gemini(request: Recorded) -> None:
    first, second = (tool["function"] for tool in request.json["tools"])
    check_gemini(first["parameters"])
    assert "parameters" not in second
    assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_.-]{0,63}", first["name"])
    assert own_call(request)["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    (unsigned,) = foreign_call(request)["tool_calls"]
    assert unsigned["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"


def mistral(request: Recorded) -> None:
    assert set(request.json) <= {"model", "messages", "stream", "tools", "max_tokens", "temperature", "tool_choice"}
    for message in request.json["messages"]:
        assert set(message) <= {"role", "content", "tool_calls", "tool_call_id"}
        for tool_call in message.get("tool_calls", ()):
            assert set(tool_call) == {"id", "type", "function"}
            assert re.fullmatch("[a-zA-Z0-9]{9}", tool_call["id"])


def deepseek(request: Recorded) -> None:
    assert own_call(request)["reasoning_content"] == "Hm"
    assert foreign_call(request)["reasoning_content"] == ""


def moonshot(request: Recorded) -> None:
    deepseek(request)
    function = request.json["tools"][0]["function"]
    assert re.fullmatch("[a-zA-Z][a-zA-Z0-9_-]{0,63}", function["name"])
    check_openai(function["parameters"])
    assert own_call(request)["tool_calls"][0]["id"] == "functions.now:0"


def openrouter(request: Recorded) -> None:
    assert own_call(request)["reasoning_details"] == DETAILS


def groq(request: Recorded) -> None:
    assert own_call(request)["reasoning"] == "Hm"
    assert not [message for message in request.json["messages"] if "reasoning_content" in message]


def streamed_call(preset: str, field: str, *more: Any, finish: str = "tool_calls", **beside: Any) -> tuple[Answer, ...]:
    """Return a stream of one reasoning delta, one complete call, and the usage."""
    calls = [{"tool_calls": [call(preset, index=0, **beside)]}]
    return (events(chunk({"role": "assistant", field: "Hm"}), *map(chunk, calls), chunk({}, finish), *more, LAST),)


def complete_call(preset: str, field: str, finish: str = "tool_calls", **beside: Any) -> tuple[Answer, ...]:
    return (whole({field: "Hm", "tool_calls": [call(preset, **beside)]}, finish),)


ASKS = (Say("", (Call("3d__now", {"tz": "UTC"}),), reasoning="Hm"),)
FRAGMENTS = [
    {"index": 0, "id": "call_1", "type": "function", "function": {"name": "3d__now", "arguments": ""}},
    *({"index": 0, "id": "", "function": {"name": "", "arguments": piece}} for piece in (ARGUMENTS[:5], ARGUMENTS[5:])),
]
COMMENTED = Raw((b": OPENROUTER PROCESSING\n\n" * 3,))
ROUTED = events(
    chunk({"role": "assistant", "content": "", "reasoning": "Hm", "reasoning_details": DETAILS}),
    chunk({"tool_calls": [call("openrouter", id=None)]}),
    chunk({"tool_calls": [{"function": {"arguments": ""}}]}),
    LAST,
)
STATE = {"custom_content": {"state": {"step": 1}}}

CASES: dict[str, Case] = {
    "openai": Case(ASKS, ASKS, openai),
    "anthropic": Case(ASKS, ASKS, anthropic),
    "azure": Case(
        (
            events(
                FILTERED,
                chunk({"role": "assistant"}),
                chunk({"tool_calls": [call("azure", index=0)]}, "tool_calls"),
                {"object": "", "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]},
                LAST,
            ),
        ),
        (whole({"tool_calls": [call("azure")]}, prompt_filter_results=[]),),
        azure,
        reasoning="",
    ),
    "dial": Case(
        (
            events(
                chunk({"role": "assistant", **STATE}),
                chunk({"tool_calls": [call("dial", index=0)]}, "tool_calls"),
                LAST,
            ),
        ),
        (whole({"tool_calls": [call("dial")], **STATE}, statistics={}),),
        dial,
        reasoning="",
        described=one_json({"interfaces": ["openaiChatCompletions"], "features": {"tools": True}}),
    ),
    "ollama": Case(streamed_call("ollama", "reasoning"), complete_call("ollama", "reasoning"), ollama),
    "vllm": Case(
        (
            events(
                chunk({"reasoning": "Hm"}, usage={"prompt_tokens": 11, "completion_tokens": 1}),
                *(chunk({"tool_calls": [piece]}) for piece in FRAGMENTS),
                chunk({}, "stop"),
                LAST,
            ),
        ),
        complete_call("vllm", "reasoning", "stop"),
        vllm,
    ),
    "llama.cpp": Case(
        streamed_call("llama.cpp", "reasoning_content", {"choices": [], "timings": {"prompt_n": 3}}),
        complete_call("llama.cpp", "reasoning_content"),
        llama_cpp,
    ),
    "lmstudio": Case(streamed_call("lmstudio", "reasoning"), complete_call("lmstudio", "reasoning"), vllm),
    "gemini": Case(
        (events(chunk({"role": "assistant", "tool_calls": [call("gemini", **SIGNED)]}, "stop"), LAST),),
        (whole({"tool_calls": [call("gemini", **SIGNED)]}, "stop"),),
        gemini,
        reasoning="",
    ),
    "mistral": Case(
        (
            events(
                chunk({"role": "assistant", "content": [THINKING], "reasoning_content": ""}),
                chunk({"content": "", "tool_calls": [call("mistral", id="a1B2c3D4e")]}, "tool_calls", usage=COUNTED),
            ),
        ),
        (whole({"content": [THINKING], "reasoning_content": "", "tool_calls": [call("mistral", id="a1B2c3D4e")]}),),
        mistral,
    ),
    "deepseek": Case(
        streamed_call("deepseek", "reasoning_content"), complete_call("deepseek", "reasoning_content"), deepseek
    ),
    "moonshot": Case(
        streamed_call("moonshot", "reasoning_content", id="functions.now:0"),
        complete_call("moonshot", "reasoning_content", id="functions.now:0"),
        moonshot,
    ),
    "openrouter": Case(
        (Raw((*COMMENTED.chunks, *ROUTED.chunks)),),
        (whole({"reasoning": "Hm", "reasoning_details": DETAILS, "tool_calls": [call("openrouter")]}),),
        openrouter,
    ),
    "groq": Case(
        (
            events({"error": UNREADABLE}, done=False),
            events(
                chunk(
                    {"reasoning": "Hm", "tool_calls": [call("groq", index=0)]}, "tool_calls", x_groq={"usage": COUNTED}
                )
            ),
        ),
        (refuse(400, **UNREADABLE), *complete_call("groq", "reasoning")),
        groq,
        notes=("the endpoint could not parse the model's tool call: the request is sent again",),
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_the_endpoint_cannot_parse_twice_is_an_error(stream: bool) -> None:
    failed = events({"error": UNREADABLE}, done=False) if stream else refuse(400, **UNREADABLE)
    with model_endpoint([failed]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError, match="Failed to call a function") as caught:
            await hear(provider, stream=stream)
        await provider.aclose()

    assert caught.value.code == "tool_use_failed"
    assert len(endpoint.requests) == 2


@pytest.mark.anyio
async def test_a_request_is_not_repeated_after_streamed_text() -> None:
    with model_endpoint([events(chunk({"content": "I look"}), {"error": UNREADABLE}, done=False)]) as endpoint:
        provider = provider_of(endpoint)
        with pytest.raises(ProviderError):
            await hear(provider)
        await provider.aclose()

    assert len(endpoint.requests) == 1


def test_every_known_endpoint_has_a_row_and_a_case() -> None:
    assert sorted(ROWS) == sorted(CASES) == sorted(PRESETS)


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("preset", sorted(CASES))
async def test_a_turn_works_with_the_variations_of_the_endpoint(preset: str, stream: bool) -> None:
    case = CASES[preset]
    answers = case.streamed if stream else case.whole
    with model_endpoint([*answers, Say("Noon.")], case.described) as endpoint:
        settings = ModelProfile(
            "p", base_url=endpoint.url, model="m", api_key="k", settings=ModelSettings(max_tokens=50), preset=preset
        )
        provider = open_provider("p", models={"p": settings}, environ={})
        question = [Message.system("Be kind"), *ELSEWHERE, Message.user("What time is it?")]
        first = await hear(provider, *question, tools=TOOLS, stream=stream)
        shown = (TextPart("12:00"), ImagePart(PIXEL, "image/png"))
        results = [
            Message.tool(tool_call, ToolCallResult(tool_call.id, success=True, content=shown))
            for tool_call in first.calls
        ]
        conversation = [*question, first.message(provider), *results, Message.user("And?")]
        second = await hear(provider, *conversation, tools=TOOLS, stream=stream)
        last = await hear(provider, *conversation, tools=TOOLS, tool_choice=ToolChoice.NONE, stream=stream)
        await provider.aclose()

    assert first.asked == [("3d__now", {"tz": "UTC"})]
    assert first.reasoning == case.reasoning
    assert first.completion.usage == Usage(11, 7)
    assert first.completion.notes == case.notes
    assert (second.text, last.text) == ("Noon.", "Noon.")
    for request in endpoint.requests:
        check_conversation(preset, request)
        assert request.json["model"] == "m"
    case.check(endpoint.requests[-2])
    final = endpoint.requests[-1].json
    if preset == "ollama":
        assert "tools" not in final
    else:
        assert final["tool_choice"] in ("none", {"type": "none"})


ELSEWHERE = (
    Message.user("Hello?"),
    Message.assistant("I look.", [ToolCallRequest("call_elsewhere-1", "3d__now", {})]),
    Message.tool(
        ToolCallRequest("call_elsewhere-1", "3d__now", {}),
        ToolCallResult("call_elsewhere-1", success=True, content="11:00"),
    ),
    Message.assistant("Eleven."),
)


def check_conversation(preset: str, request: Recorded) -> None:
    body = json.loads(request.body)
    match PRESETS[preset].api:
        case Api.CHAT:
            check_chat(body["messages"], PRESETS[preset].profile)
        case Api.RESPONSES:
            check_responses((body["instructions"], body["input"]))
        case Api.MESSAGES:
            check_messages((body["system"], body["messages"]))
