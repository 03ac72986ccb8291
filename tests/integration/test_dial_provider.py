"""Deployments of a DIAL core: their description selects the API and its flags; the default is chat completions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.inner import (
    Api,
    DialProvider,
    ImagePart,
    Message,
    ModelProfile,
    ModelSettings,
    ProviderError,
    ProviderState,
    Role,
    TextPart,
    ToolCallResult,
    ToolFormat,
    ToolSpec,
    open_provider,
)
from tests.support.images import PIXEL
from tests.support.model_endpoint import Call, ModelEndpoint, Raw, Say, events, hear, model_endpoint, one_json, refuse

pytestmark = pytest.mark.anyio

TOOLS = (ToolSpec("now", "The time", {"type": "object", "properties": {"tz": {"type": "string"}}}),)
CHAT = "/openai/deployments/m%2F1/chat/completions?api-version=2025-04-01-preview"
RESPONSES = "/openai/v1/responses"
MESSAGES = "/anthropic/v1/messages"
ALL = ["openaiChatCompletions", "openaiResponses", "anthropicMessages"]


def dial(endpoint: ModelEndpoint, **settings: Any) -> DialProvider:
    fields = {"preset": "dial", "base_url": endpoint.url, "model": "m/1", "api_key": "k"} | settings
    provider = open_provider("p", models={"p": ModelProfile("p", **fields)}, environ={})
    assert isinstance(provider, DialProvider)
    return provider


def described(*interfaces: str, **features: Any) -> Raw:
    return one_json({"id": "m/1", "object": "deployment", "interfaces": list(interfaces), "features": features})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("features", "path"),
    [
        pytest.param(described(*ALL), RESPONSES, id="all three: Responses, as OpenAI's have it"),
        pytest.param(described("openaiChatCompletions", "anthropicMessages"), MESSAGES, id="Claude: Messages"),
        pytest.param(described("openaiChatCompletions"), CHAT, id="chat alone"),
        pytest.param(described(responses_api=True), RESPONSES, id="a flag in place of an interface"),
        pytest.param(described(responses_api=False, chat_completion=True), CHAT, id="flags, and no Responses"),
        pytest.param(one_json({"interfaces": None, "features": "all"}), CHAT, id="nothing that can be used"),
        pytest.param(one_json([]), CHAT, id="no object"),
        pytest.param(refuse(404, "no such deployment"), CHAT, id="not known"),
        pytest.param(refuse(500, "out of luck"), CHAT, id="a fault"),
        pytest.param(Raw((b"<html>Hello",)), CHAT, id="a web page"),
    ],
)
async def test_the_description_of_a_deployment_selects_its_api(features: Raw, path: str, stream: bool) -> None:
    with model_endpoint([Say("", (Call("now", {"tz": "UTC"}),)), Say("Noon.")], features) as endpoint:
        provider = dial(endpoint)
        await provider.prepare()
        first = await hear(provider, tools=TOOLS, stream=stream)
        result = Message.tool(first.calls[0], ToolCallResult("call_1", success=True, content="12:00"))
        second = await hear(provider, Message.user("?"), first.message(provider), result, tools=TOOLS, stream=stream)
        await provider.aclose()

    assert (first.asked, second.text) == ([("now", {"tz": "UTC"})], "Noon.")
    assert [request.path for request in endpoint.requests] == [path, path]
    assert [request.json["model"] for request in endpoint.requests] == ["m/1", "m/1"]
    assert [request.path for request in endpoint.lookups] == ["/openai/deployments/m%2F1"], "once"
    for request in (*endpoint.lookups, *endpoint.requests):
        assert request.headers["api-key"] == "k"
        assert "authorization" not in request.headers
    assert {request.headers.get("anthropic-version") is not None for request in endpoint.requests} == {path == MESSAGES}


async def test_a_core_that_does_not_describe_a_deployment_fails_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dial_client.providers.dial._DESCRIPTION_TIMEOUT", 0.05)
    with model_endpoint([Say("Hi")], Raw(hang=True)) as endpoint:
        provider = dial(endpoint)
        heard = await hear(provider)
        await provider.aclose()

    assert heard.text == "Hi"
    assert heard.completion.notes == ()
    assert endpoint.requests[0].path == CHAT


async def test_concurrent_turns_request_the_description_once() -> None:
    with model_endpoint([Say("Hi")], described(*ALL)) as endpoint:
        provider = dial(endpoint)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(hear, provider)
        await provider.aclose()

    assert len(endpoint.lookups) == 1
    assert [request.path for request in endpoint.requests] == [RESPONSES] * 5


@pytest.mark.parametrize(("wire", "path"), [(Api.CHAT, CHAT), (Api.RESPONSES, RESPONSES), (Api.MESSAGES, MESSAGES)])
async def test_the_api_of_a_profile_overrides_the_description(wire: Api, path: str) -> None:
    with model_endpoint([Say("Hi")], described(*ALL)) as endpoint:
        provider = dial(endpoint, api=wire)
        await hear(provider)
        await provider.aclose()

    assert endpoint.requests[0].path == path


async def test_fields_that_a_deployment_does_not_support_are_not_sent() -> None:
    description = described(
        "openaiChatCompletions",
        custom_temperature_supported=False,
        max_completion_tokens_supported=True,
        parallel_tool_calls=False,
        content_parts=False,
        system_prompt=False,
        tools=True,
    )
    look = Message(Role.USER, (TextPart("Look"), ImagePart(PIXEL, "image/png")))
    with model_endpoint([Say("Hi")], description) as endpoint:
        provider = dial(endpoint, settings=ModelSettings(temperature=0.5, max_tokens=9))
        heard = await hear(provider, Message.system("Be kind"), look, tools=TOOLS)
        await provider.aclose()

    sent = endpoint.requests[0].json
    assert not {"temperature", "max_tokens", "parallel_tool_calls"} & set(sent)
    assert sent["max_completion_tokens"] == 9
    (message,) = sent["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("Be kind\n\n")
    assert "image/png" in message["content"]
    assert "the endpoint accepts no temperature: none is sent" in heard.completion.notes


async def test_no_token_limit_is_sent_to_a_deployment_without_support() -> None:
    description = described(max_tokens_supported=False, max_completion_tokens_supported=False)
    with model_endpoint([Say("Hi")], description) as endpoint:
        provider = dial(endpoint, settings=ModelSettings(max_tokens=9))
        await hear(provider)
        await provider.aclose()

    assert not [name for name in endpoint.requests[0].json if "tokens" in name]


async def test_flags_of_a_profile_override_the_description() -> None:
    description = described(custom_temperature_supported=False, max_completion_tokens_supported=True)
    with model_endpoint([Say("Hi")], description) as endpoint:
        quirks = {"sampling": True, "max_tokens_field": "max_tokens"}
        provider = dial(endpoint, settings=ModelSettings(temperature=0.5, max_tokens=9), quirks=quirks)
        await hear(provider)
        await provider.aclose()

    sent = endpoint.requests[0].json
    assert (sent["temperature"], sent["max_tokens"]) == (0.5, 9)


async def test_tools_for_a_deployment_without_tool_support_are_an_error_before_the_request() -> None:
    with model_endpoint([Say("Hi")], described(tools=False)) as endpoint:
        provider = dial(endpoint)
        with pytest.raises(ProviderError, match='"tools": "native"') as caught:
            await hear(provider, tools=TOOLS)
        in_words = await hear(provider)
        await provider.aclose()
        native = dial(endpoint, quirks={"tools": "native"})
        await hear(native, tools=TOOLS)
        await native.aclose()

    assert caught.value.code == "tools_unsupported"
    assert in_words.text == "Hi"
    assert [len(request.json.get("tools", ())) for request in endpoint.requests] == [0, 1]


async def test_a_profile_can_select_tool_calls_as_text() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        assert dial(endpoint, quirks={"tools": "text"}).info.tool_format is ToolFormat.REACT
        assert dial(endpoint).info.tool_format is None


async def test_an_echo_is_sent_back_only_over_its_own_api() -> None:
    thinks = Say("I look.", (Call("now", {}),), reasoning="SECRET-THOUGHT")
    with model_endpoint([thinks, Say("Noon.")], described("anthropicMessages")) as endpoint:
        provider = dial(endpoint)
        name = provider.info.name
        first = await hear(provider, tools=TOOLS)
        message = first.message(provider)
        result = Message.tool(first.calls[0], ToolCallResult("call_1", success=True, content="12:00"))
        conversation = [Message.user("?"), message, result]
        await hear(provider, *conversation, tools=TOOLS)
        await provider.aclose()
        for wire in (Api.CHAT, Api.RESPONSES):
            second = dial(endpoint, api=wire)
            assert second.info.name == provider.info.name == name
            await hear(second, *conversation, tools=TOOLS)
            await second.aclose()

    own, chat, responses = endpoint.requests[1:]
    assert own.json["messages"][1]["content"][0]["thinking"] == "SECRET-THOUGHT"
    assert b"SECRET-THOUGHT" not in chat.body + responses.body
    assert b"now" in chat.body
    assert b"now" in responses.body


async def test_an_echo_of_an_unknown_type_is_left_out() -> None:
    with model_endpoint([Say("Hi")]) as endpoint:
        provider = dial(endpoint)
        odd = Message(Role.ASSISTANT, "Hm", echo=ProviderState(provider.info.name, ["SECRET"]))
        await hear(provider, Message.user("?"), odd, Message.user("And?"))
        await provider.aclose()

    assert b"SECRET" not in endpoint.requests[0].body


async def test_the_state_of_a_deployment_is_sent_back_and_a_note_names_its_attachments() -> None:
    attachment = {"type": "image/png", "title": "A plot", "url": "files/plot.png"}
    custom = {"state": {"step": 3}, "attachments": [attachment], "stages": [{"name": "Plotting"}]}
    chunk = {"choices": [{"delta": {"custom_content": custom}}]}
    last = {"choices": [{"delta": {"content": "Done"}, "finish_reason": "stop"}], "statistics": {"usage_per_model": []}}
    with model_endpoint([events(chunk, last), Say("Fine")]) as endpoint:
        provider = dial(endpoint)
        heard = await hear(provider)
        await hear(provider, Message.user("?"), heard.message(provider), Message.user("And?"))
        await provider.aclose()

    assert heard.completion.notes == ("the deployment attached: A plot, image/png, files/plot.png",)
    assert endpoint.requests[1].json["messages"][1]["custom_content"] == {"state": {"step": 3}}
